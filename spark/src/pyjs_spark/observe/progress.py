"""One batch of a streaming query, from the progress that Spark reports as JSON.

    {"name": "orders", "batchId": 5, "numInputRows": 40, "batchDuration": 945, "durationMs": {"addBatch": 544, ...},
     "sources": [{"startOffset": {...}, "endOffset": {...}, "latestOffset": {...}}], "observedMetrics": {...}, ...}

The offsets have the format of `read/offsets.py`; sources with other offsets are left out. `latestOffset` has the end
of each stream after the batch. Its field `lost` has, for each stream, the number of sequences that were lost in this
run of the query.

Source: StreamingQueryProgress of pyspark 4.2 and 4.3, checked in spark/tests/jvm/datasource/test_observe_run.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyjs_spark.errors import SparkError
from pyjs_spark.read import offsets
from pyjs_spark.read.offsets import Offsets

OBSERVED = "jetstream"  # name of the observation that `measured` adds


@dataclass(frozen=True, slots=True)
class QueryKey:
    """One run of one query."""

    id: str  # unchanged after a restart from the checkpoint
    run: str
    name: str  # "" if the user gave no name

    @property
    def label(self) -> str:
        """Return the name of the query, or its id if it has none."""
        return self.name or self.id


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The part of one stream in one batch."""

    stream: str
    next: int  # the sequence after the last sequence of the batch
    lag: int  # sequences in the stream after the batch
    sequences: int | None  # number in the batch; None in the first batch of a query, whose start is unknown
    lost: int  # number of lost sequences that the plans of this run have found so far


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A progress report of a query, usually about one batch."""

    query: QueryKey
    batch: int
    rows: int
    seconds: float
    is_work: bool = True  # False: a report without a batch, because the query is waiting
    size: int | None = None  # bytes of the payloads, if `measured` counted them
    late_rows: int = 0  # dropped, since older than the watermark; counted after a partial aggregation
    state_rows: int = 0
    streams: tuple[StreamPart, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase
    observed: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (observation, metric) -> value

    @property
    def lag(self) -> int:
        """Return the number of sequences after this batch, in all streams together."""
        return sum(part.lag for part in self.streams)


def batch_of(text: str) -> BatchDone:
    """Return the batch in the JSON of one progress report."""
    said = json.loads(text)
    phases = {name: ms / 1000 for name, ms in (said.get("durationMs") or {}).items()}
    states = said.get("stateOperators") or []
    observed = _numbers(said.get("observedMetrics") or {})
    size = observed.get((OBSERVED, "bytes"))
    return BatchDone(
        query=QueryKey(said["id"], said["runId"], said.get("name") or ""),
        batch=said["batchId"],
        rows=said.get("numInputRows") or 0,
        seconds=(said.get("batchDuration") or 0) / 1000,
        is_work="addBatch" in phases,
        size=None if size is None else int(size),
        late_rows=sum(each.get("numRowsDroppedByWatermark") or 0 for each in states),
        state_rows=sum(each.get("numRowsTotal") or 0 for each in states),
        streams=tuple(part for source in said.get("sources") or [] for part in _parts(source)),
        phases=phases,
        observed=observed,
    )


def _numbers(said: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    return {
        (name, metric): value
        for name, values in said.items()
        for metric, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _parts(source: Mapping[str, Any]) -> list[StreamPart]:
    """Return the part of each stream of one source, or [] if the source is not of this format."""
    begin, end, newest = (_decoded(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    starts, tops, lost = _offsets(begin), _offsets(newest), newest.get("lost") or {}
    found = []
    for name, at in _offsets(end).items():
        was, top = starts.get(name), tops.get(name)
        found.append(
            StreamPart(
                stream=name,
                next=at.next,
                lag=max(0, top.next - at.next) if top is not None and top.created == at.created else 0,
                sequences=at.next - was.next if was is not None and was.created == at.created else None,
                lost=lost.get(name, 0),
            )
        )
    return found


def _decoded(said: object) -> dict[str, Any]:
    """Return an offset, which Spark reports as a JSON object or as a string, or {} if there is none."""
    found = json.loads(said) if isinstance(said, str) else said
    return found if isinstance(found, dict) else {}


def _offsets(said: Mapping[str, Any]) -> Offsets:
    try:
        return offsets.from_json(said)
    except SparkError:
        return {}  # none, or of another data source
