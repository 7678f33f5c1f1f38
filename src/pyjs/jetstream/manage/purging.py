"""Removals of many messages in steps, for long purges and lowered limits. Clients see a single change.

The removal has exclusive access to the stream's gate, so requests wait; deliveries wait while `store.changing` is
set. Publishes do not wait: each finds the messages of its own subject either all present or all removed. A purge of a
file stream is recorded before its first step (store/format/purge_file), so that after a kill the next start completes
it. A lowered limit is in the metadata before the first message is removed, so a starting server applies the limit.

Source: STREAM.PURGE and STREAM.UPDATE of nats-server, which runs each under one lock.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.stream.lowered_limits import lower_steps
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.stream import Stream
from pyjs.store import searches
from pyjs.store.format.purge_file import Purge

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.files.stored_purge import PurgeFile
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.store.index.filter import StoreFilter

AT_ONCE = 4000  # messages; larger purges are done in steps
STEP = 2000  # messages removed or examined in one step: about a millisecond


def purge(
    js: JetStream, stream: Stream, subject: bytes, before_seq: int, keep: int
) -> Generator[Step, None, int]:
    """Purge messages as Stream.purge does, in steps if there are many; return the number of removed messages.

    Raises:
        ApiError: the stream was deleted between two steps.
        StoreFailed: some removals were not written; the next start completes them.
    """
    if stream.replica is not None:
        removed: int = yield from stream.replica.operate(operations.purge(subject, before_seq, keep))
        return removed
    store = stream.store
    wanted = store.make_filter((subject,) if subject else ())
    if _is_short(stream, wanted, before_seq, keep):
        return stream.purge(subject, before_seq, keep)
    stream.commit_now()  # as in Stream.purge
    end_seq = yield from searches.purge_end(store.catalogue, wanted, before_seq, keep)
    few = yield from searches.matches(store.catalogue, 1, end_seq, wanted, AT_ONCE + 1)
    _check_open(stream)
    if len(few) <= AT_ONCE:
        purged = store.purge_seqs(few)
        stream.end_purge(subject)
        return purged
    note: PurgeFile | None = None
    if stream.config.storage == FILE:
        note = js.files.open_purge(stream.name)
        yield from note.begin(Purge(subject.decode(), end_seq), js.shared.metadata)
        _check_open(stream)
    store.changing = True  # last, since waiting deliveries check in each turn whether it is still set
    try:
        purged = yield from drop_steps(stream, wanted, end_seq)
        stream.end_purge(subject)
    except StoreFailed:
        with suppress(StoreFailed):
            stream.end_purge(subject)  # consumers count the remaining messages again
        raise
    finally:
        store.changing = False
    if note is not None:
        note.end(js.shared.metadata)
    return purged


def _is_short(stream: Stream, wanted: StoreFilter, before_seq: int, keep: int) -> bool:
    """Return whether a purge fits into one step.

    That is so if the stream has few messages. It is also so if all messages match, and the purge removes few of them
    or all of them (a thread then frees the memory).
    """
    store = stream.store
    if store.msgs <= AT_ONCE or before_seq == 1:
        return True
    if not wanted.all or keep:
        return wanted.all and store.msgs - keep <= AT_ONCE
    if before_seq == 0 or before_seq > store.last_seq:
        return True
    return store.msgs - store.catalogue.count_matching(before_seq, wanted) <= AT_ONCE


def drop_steps(stream: Stream, wanted: StoreFilter, end_seq: int) -> Generator[Step, None, int]:
    """Remove the matches with a sequence below `end_seq`, in steps; return the number of removed messages.

    Raises:
        ApiError: the stream was deleted between two steps.
        StoreFailed: some removals were not written.
    """
    purged, seq = 0, 1
    while seq:
        count, seq = stream.store.drop_some(wanted, seq, end_seq, STEP)
        purged += count
        stream.commit_now()
        yield None
        _check_open(stream)
    return purged


def lower_limits(stream: Stream, config: StreamConfig) -> Generator[Step, None, None]:
    """Remove the messages that exceed the limits of `config`, in steps if the stream has many messages.

    Call this before `config` is applied to the stream, since applying it removes all remaining messages above the
    limits.

    Raises:
        ApiError: the stream was deleted between two steps.
        StoreFailed: some removals were not written.
    """
    for _ in lower_steps(stream, config):
        stream.commit_now()
        yield None
        _check_open(stream)
    stream.commit_now()


def _check_open(stream: Stream) -> None:
    errcodes.STREAM_NOT_FOUND.raise_if(stream.closed)
