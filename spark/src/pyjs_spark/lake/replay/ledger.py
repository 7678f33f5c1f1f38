"""The progress of a replay, which is the key `<id>.replay` in the sink's progress bucket (option progressBucket).

    {"v": 1, "definition": {...}, "created": "...", "batch": 3, "low": 2000001, "high": 3000001, "state": "begun"}

`created` is the creation time of the archived stream. The state of a batch is `begun` before its first message is
sent, and `done` after its last acknowledgement. After a kill in between, the next run repeats the same batch, even
if the archive has changed. Each write names the revision that its run knows; if the key has another revision, the
write is refused. So of two concurrent runs of one replay, one fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import DataLoss, OptionError, WriterReplaced
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.nats.client import Client

if TYPE_CHECKING:
    from pyjs_spark.write.keys import Keys

BEGUN, DONE = "begun", "done"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The progress of a replay, as stored under its key."""

    definition: Mapping[str, Any]
    created: str  # of the archived stream
    batch: int = 0  # the last batch that was begun, or 0
    low: int = 1
    high: int = 1
    state: str = DONE
    revision: int = 0  # revision of the key; not part of the value

    @property
    def next(self) -> int:
        """Return the first sequence that no finished batch contains."""
        return self.high if self.state == DONE else self.low


def check_same(found: Replay, ledger: Ledger, created: str) -> None:
    """Raise OptionError if the id belongs to another replay, and DataLoss if the archive is of another stream."""
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
    """Return the stored progress of this replay, or the initial progress if the key does not exist.

    `created` is the creation time of the stream.
    """
    key, fresh = _key(found), Ledger(found.definition(), created)
    said = _keys(client, found).read_patiently(key).get(key)
    if said is None:
        return fresh
    return replace(fresh if said.value is None else Ledger(**said.value), revision=said.revision)


def write(client: Client, found: Replay, ledger: Ledger) -> Ledger:
    """Store a ledger if the revision of its key has not changed, and return the ledger with the new revision.

    Raises:
        WriterReplaced: another run has changed the key.
    """
    value = asdict(ledger)
    del value["revision"]
    revision = _keys(client, found).write(_key(found), value, ledger.revision)
    if revision is not None:
        return replace(ledger, revision=revision)
    last = read(client, found, ledger.created)
    if replace(last, revision=ledger.revision) == ledger:
        return last  # the first attempt at this write succeeded, but its answer was lost
    raise WriterReplaced(f"id={found.id}: another run of this replay goes on at the same time; this one ends")


def _key(found: Replay) -> str:
    return f"{found.id}.replay"


def _keys(client: Client, found: Replay) -> Keys:
    from pyjs_spark.write.keys import Keys  # imported lazily: needs pyarrow

    return Keys(client, found.options)
