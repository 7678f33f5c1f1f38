"""The durable progress of a sink: one key for each partition, and one for the sink, in a bucket (keys.py).

    key      <sinkId>.<partition>
    value    JSON: {"v": 1, "batch": 7, "state": "begun", "stream": "OUT", "created": "...", "after": 1234,
                    "first_run": "...", "attempt": "...", "rows": 0, "digest": "",
                    "duplicates": 0}

    key      <sinkId>.batch
    value    JSON: {"v": 1, "batch": 7, "run": "...", "stream": "OUT"}

A run is one write of a batch by Spark; if the batch is repeated, that is another run. The second key has the run
that began the newest batch. A task of that run reads only this key and the marker of its partition. A task of a
later run reads all markers, since the partitions may have been different in the earlier run.

The state `begun` is written before the first row of a batch, with the stream's last sequence at that time: all
messages of the batch come after it. The state `done` is written after the last acknowledgement.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyjs_spark.errors import WriterReplaced
from pyjs_spark.nats.client import Client
from pyjs_spark.options.writing import SinkOptions
from pyjs_spark.write.keys import Keys, KeyValue

BEGUN = "begun"
DONE = "done"


@dataclass(frozen=True, slots=True)
class Marker:
    """The progress of one partition of a sink."""

    batch: int
    state: str  # BEGUN or DONE
    stream: str  # the target stream
    created: str  # creation time of the target
    after: int  # the stream's last sequence before the first attempt at this batch
    first_run: str  # the run that began this batch
    attempt: str  # the attempt that wrote this marker
    rows: int = 0  # if DONE: number of the batch's rows in this partition
    digest: str = ""  # if DONE: digest of the content of these rows
    # if DONE: number of rows that the last attempt sent although the stream already had them
    duplicates: int = 0
    revision: int = 0  # of the key; not part of the value
    ts_ns: int = 0  # time at which the marker was written, in ns since 1970; not part of the value


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The newest batch of a sink, and the run that began it."""

    batch: int
    run: str
    stream: str  # the target stream
    revision: int = 0  # of the key; not part of the value


def new_attempt() -> str:
    """Return a unique name for an attempt at a partition, or for a run."""
    return f"{random.getrandbits(64):016x}"


class Progress:
    """The markers of one sink in the progress bucket."""

    def __init__(self, client: Client, options: SinkOptions, sink_id: str) -> None:
        self.keys = Keys(client, options)
        self._sink_id = sink_id
        self._batch_key = f"{sink_id}.batch"
        self._deleted: dict[int, int] = {}  # partition whose key was deleted -> revision of the deletion

    def read(self) -> dict[int, Marker]:
        """Return the marker of every partition that has one."""
        return self._markers(self.keys.read(f"{self._sink_id}.*"))

    def read_own(self, part: int) -> tuple[Marker | None, BatchMark | None]:
        """Return the marker of a partition, and the mark of the newest batch; each is None if it is missing."""
        found = self.keys.read(f"{self._sink_id}.{part}", self._batch_key)
        return self._markers(found).get(part), self._batch_in(found)

    def begin(self, mark: BatchMark) -> BatchMark:
        """Replace the mark of the newest batch if its revision is the known one; return the mark that is then stored.

        This may be the mark of another task.
        """
        revision = self.keys.write(self._batch_key, _stored_part(mark), mark.revision)
        if revision is not None:
            return replace(mark, revision=revision)
        # Another task was faster, or this write had succeeded and was repeated.
        return self._batch_in(self.keys.read_patiently(self._batch_key)) or mark

    def write(self, part: int, marker: Marker) -> Marker:
        """Replace a marker if its revision is the known one; return the marker with the new revision.

        Raises:
            WriterReplaced: the key has a newer revision, which this write did not create.
        """
        key = f"{self._sink_id}.{part}"
        revision = self.keys.write(key, _stored_part(marker), marker.revision or self._deleted.get(part, 0))
        if revision is not None:
            return replace(marker, revision=revision)
        last = self._markers(self.keys.read_patiently(key)).get(part)
        if last is not None and (last.attempt, last.state) == (marker.attempt, marker.state):
            return last
        raise WriterReplaced(
            f"partition {part} of batch {marker.batch}: another attempt writes these rows as well and goes on; this "
            "one ends. Two queries with one sinkId look like this too"
        )

    def forget(self) -> None:
        """Remove all markers of this sink."""
        self.keys.forget(f"{self._sink_id}.>")

    def _batch_in(self, found: Mapping[str, KeyValue]) -> BatchMark | None:
        mark = found.get(self._batch_key)
        if mark is None:
            return None
        return BatchMark(**mark.value or {"batch": -1, "run": "", "stream": ""}, revision=mark.revision)

    def _markers(self, found: Mapping[str, KeyValue]) -> dict[int, Marker]:
        markers = {}
        for key, mark in found.items():
            part = key.removeprefix(f"{self._sink_id}.")
            if not part.isdigit():
                continue
            if mark.value is None:
                self._deleted[int(part)] = mark.revision
            else:
                markers[int(part)] = Marker(**mark.value, revision=mark.revision, ts_ns=mark.ts_ns)
        return markers


def _stored_part(mark: Marker | BatchMark) -> dict[str, Any]:
    """Return the value to store for a mark."""
    return {name: value for name, value in asdict(mark).items() if name not in ("revision", "ts_ns")}
