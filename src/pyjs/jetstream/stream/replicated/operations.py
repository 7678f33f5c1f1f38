"""The operations of a replicated stream (entries other than messages), and their effect on a replica.

The effect depends only on the stream and the entry, so it is the same on all replicas. After a crash, an operation in
steps may begin again: messages that it has already removed do not change its result.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.declared import from_meta, to_meta
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.files.removals import MemoryRelease
from pyjs.jetstream.stream.lowered_limits import lower_steps
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.jetstream.stream.retention import remove_all
from pyjs.store import searches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.jetstream.stream.replicated.replica import Replica
    from pyjs.store.index.filter import StoreFilter

    Steps = Generator[Step, None, Any]

STEP = 2000  # number of messages removed in one step, which takes about a millisecond
_PURGE = Struct("<QQ")
_DELETE = Struct("<QB")
_SEQ = Struct("<Q")
_DUE = Struct("<Qq")


# -- payloads ---------------------------------------------------------------------------------------------------


def purge(subject: bytes, before_seq: int, keep: int) -> bytes:
    """Return the payload of a purge; for the arguments, see `Stream.purge`."""
    return operation("purge", _PURGE.pack(before_seq, keep), subject)


def delete(seq: int, erase: bool) -> bytes:
    """Return the payload that removes one message."""
    return operation("delete", _DELETE.pack(seq, erase))


def configure(config: StreamConfig) -> bytes:
    """Return the payload that replaces the configuration."""
    return operation("configuration", orjson.dumps(to_meta(config)))


def skip(seq: int) -> bytes:
    """Return the payload that uses up all sequences up to `seq` without messages."""
    return operation("skip", _SEQ.pack(seq))


def nothing() -> bytes:
    """Return the payload of an entry without effect; when it is applied, all earlier entries are applied too."""
    return skip(0)


# -- effects ----------------------------------------------------------------------------------------------------


def apply_operation(replica: Replica, kind: str, subject: bytes, body: bytes) -> Steps:
    """Apply the operation of a checked payload, and return its result.

    Raises:
        ApiError: the operation is refused. Every replica refuses it with the same error.
    """
    if kind.startswith("consumer"):
        return replica.consumers.apply(kind, subject, body)
    if kind in _IN_STEPS:
        return (yield from _IN_STEPS[kind](replica, subject, body))
    return _AT_ONCE[kind](replica, body)


def _purge(replica: Replica, subject: bytes, body: bytes) -> Steps:
    stream, store = replica.stream, replica.stream.store
    before_seq, keep = _PURGE.unpack(body)
    wanted = store.make_filter((subject,) if subject else ())
    if store.msgs <= STEP or (wanted.all and not keep and not 0 < before_seq <= store.last_seq):
        purged = store.purge(wanted, before_seq, keep)
        stream.turn.jobs.extend(MemoryRelease(remains) for remains in store.catalogue.take_remains())
    else:
        end_seq = yield from searches.purge_end(store.catalogue, wanted, before_seq, keep)
        purged = yield from _drop_steps(replica, wanted, end_seq)
    stream.evictions.purges.append(subject)  # the commit will inform the consumers
    return purged


def _drop_steps(replica: Replica, wanted: StoreFilter, end_seq: int) -> Steps:
    """Remove the matching messages below `end_seq`, and return their number; readers wait until all are removed."""
    store = replica.stream.store
    purged, seq = 0, 1
    store.changing = True
    try:
        while seq:
            count, seq = store.drop_some(wanted, seq, end_seq, STEP)
            purged += count
            if seq:
                replica.stream.note_change()
                yield None
    finally:
        store.changing = False
    return purged


def _delete(replica: Replica, body: bytes) -> bool:
    seq, erase = _DELETE.unpack(body)
    if erase:  # overwritten at once, so the record of the erasure must have the mark of this entry
        replica.mark_applied()
    removed = replica.stream.store.drop_seq(seq, bool(erase))
    if erase and removed:
        replica.stream.dedupe.forget_one(seq)  # a restart would not find the id in the erased message
    return removed


def _configure(replica: Replica, _subject: bytes, body: bytes) -> Steps:
    config = from_meta(StreamConfig, orjson.loads(body))
    yield from replica.config_steps(config)
    stream = replica.stream
    old = stream.config
    # If the replica stopped while it applied this entry, its file already had `config`, and limits may still be
    # exceeded. They are then enforced below and by the end of the entry, in the same order as in the steps.
    if _limits(old) != _limits(config):
        for _ in lower_steps(stream, config):
            stream.note_change()
            yield None
    stream.dedupe.forget_older(stream.store.ids_from)  # a longer window does not bring back ids
    stream.configure(config)
    stream.special.drop_disabled()
    stream.evictions.lower(config)
    replica.configured(old)


def _limits(config: StreamConfig) -> tuple[int, int, int, str]:
    return config.max_msgs_per_subject, config.max_msgs, config.max_bytes, config.discard


def _expire(replica: Replica, _body: bytes) -> bool:
    # removes some of the expired messages; the leader proposes to remove the rest
    return replica.stream.expire_some()


def _remove(replica: Replica, body: bytes) -> None:
    remove_all(replica.stream.store, body)


def _skip(replica: Replica, body: bytes) -> None:
    (seq,) = _SEQ.unpack(body)
    errcodes.INSUFFICIENT_RESOURCES.raise_if(not replica.stream.store.skip_seqs_to(seq))


def _fire(replica: Replica, body: bytes) -> None:
    for seq, at_ns in _DUE.iter_unpack(body):
        replica.stream.special.scheduling.fire_one(seq, at_ns)


_IN_STEPS: dict[str, Callable[[Replica, bytes, bytes], Steps]] = {
    "purge": _purge,
    "configuration": _configure,
}
_AT_ONCE: dict[str, Callable[[Replica, bytes], object]] = {
    "delete": _delete,
    "expiry": _expire,
    "removal": _remove,
    "skip": _skip,
    "schedules": _fire,
}
