"""Progress of a replay: the key `<id>.replay` in the bucket of the sink's progress (option progressBucket).

    {"v": 1, "definition": {...}, "created": "...", "batch": 3, "low": 2000001, "high": 3000001, "state": "begun"}

`created` is the creation time of the archived stream. A batch is begun before its first message and done after the
last acknowledgement; after a kill in between the next run repeats the same batch, even if the archive has changed.
Each write names the revision that it has read, so of two concurrent runs of one replay, one fails.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyjs_spark import strict_json
from pyjs_spark.errors import ApiError, DataLoss, OptionError, ReplayDiffers, StreamMissing, WriterReplaced
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import Client
from pyjs_spark.read import lookup

ABSENT = (lookup.NO_MESSAGE, lookup.STREAM_NOT_FOUND)
WRONG_LAST_SEQ = 10071
BEGUN, DONE = "begun", "done"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Progress of a replay, from its key."""

    definition: Mapping[str, Any]
    created: str  # of the archived stream
    batch: int = 0  # the last that was begun, or 0
    low: int = 1
    high: int = 1
    state: str = DONE
    revision: int = 0  # of the key; not part of the value

    @property
    def next(self) -> int:
        """Return the first sequence that is not done."""
        return self.high if self.state == DONE else self.low


def check_same(found: Replay, ledger: Ledger, created: str) -> None:
    """Raise OptionError if the id belongs to another replay, DataLoss if it belongs to another archive."""
    ours = found.definition()
    for name, value in ours.items():
        if ledger.definition.get(name) != value:
            raise OptionError(
                f"id={found.id}: this replay was begun with {name}={ledger.definition.get(name)}, now {name}={value} "
                "is asked for; give it another id, which writes everything again"
            )
    if ledger.created != created:
        raise DataLoss(
            f"id={found.id}: this replay is of the stream {found.stream} created at {ledger.created}, the archive "
            f"has one of {created}; give it another id"
        )


def read(client: Client, found: Replay, created: str) -> Ledger:
    """Return the stored progress of this replay; without a key, the progress of a new replay.

    `created` is the creation time of the stream.
    """
    bucket, fresh = found.options.progress_bucket, Ledger(found.definition(), created)
    try:
        said = client.api(f"STREAM.MSG.GET.{buckets.kv_stream(bucket)}", {"last_by_subj": _key(found)})[
            "message"
        ]
    except ApiError as error:
        if error.err_code in ABSENT:
            return fresh
        raise
    data = base64.b64decode(said.get("data") or b"")
    if not data:  # deleted
        return replace(fresh, revision=int(said["seq"]))
    value = strict_json.loads(data)
    if value.pop("v", None) != 1:
        raise ReplayDiffers(f"{_key(found)} was written by another version of this package: {data!r:.100}")
    return Ledger(**value, revision=int(said["seq"]))


def write(client: Client, found: Replay, ledger: Ledger) -> Ledger:
    """Replace a ledger at its revision. Raises WriterReplaced."""
    value = {
        "v": 1, "definition": ledger.definition, "created": ledger.created, "batch": ledger.batch,
        "low": ledger.low, "high": ledger.high, "state": ledger.state,
    }  # fmt: skip
    from pyjs_spark.write.publish import publish_one

    headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % ledger.revision
    said = publish_one(client, _key(found), json.dumps(value).encode(), headers, found.options.retries)
    if said.err_code == WRONG_LAST_SEQ:
        last = read(client, found, ledger.created)
        if replace(last, revision=ledger.revision) == ledger:
            return last  # our own write, whose answer was lost
        raise WriterReplaced(
            f"id={found.id}: another run of this replay goes on at the same time; this one ends"
        )
    if said.code:
        raise StreamMissing(f"progressBucket {found.options.progress_bucket}: {said.text} (code {said.code})")
    return replace(ledger, revision=said.seq)


def _key(found: Replay) -> str:
    return f"$KV.{found.options.progress_bucket}.{found.id}.replay"
