"""Opens, creates, configures, resets and deletes the consumers of a replicated stream at its leader.

manage/consumers.py makes the same checks as on a single server, then calls this module instead of writing files. Each
change is an operation that every replica applies. The request is answered when this replica has applied the
operation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.consumer import record as consumer_record
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.replay import restore
from pyjs.jetstream.consumer.start import SEARCH_STEP, Start, restart
from pyjs.jetstream.dead_letters import targets
from pyjs.jetstream.stream.replicated import consumers as entries
from pyjs.jetstream.stream.replicated.consumers import CommittedConsumer
from pyjs.jetstream.stream.replicated.proposed_state import ProposedState

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyjs.core.chore import Step
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.consumer.resources import Resources
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.manage.persist import StoredConsumer
    from pyjs.jetstream.stream.replicated.replica import Replica
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.stream.stream_consumer import StreamConsumer

RETRY_NS = NS_PER_S  # ns to wait after a proposal that the group did not accept


class ConsumerOpener:
    """The opener of the consumers of one replica, which is set as `ReplicatedConsumers.opener`."""

    def __init__(self, js: JetStream, stream: Stream, resources: Resources) -> None:
        self._js = js
        self._stream = stream
        # Acks are answered when their changes are applied; snapshots are proposed without a thread.
        self._resources = resources._replace(sync_always=True, metadata=None)

    def prepare_steps(self, consumer: CommittedConsumer) -> Generator[None, None, None]:
        """Index the subjects that match the filters of a consumer, in steps."""
        store = self._stream.store
        while not store.catalogue.learn_subjects(store.make_filter(consumer.filters), SEARCH_STEP):
            yield

    def open(self, consumer: CommittedConsumer) -> StreamConsumer | None:
        """Open a consumer with its committed state, add it to the stream, and start it.

        Return None if the consumer stays closed, because a newer server wrote its state.
        """
        try:
            opened = self._restored(consumer)
        except consumer_record.NewerState as error:
            consumer.problem = str(error)
            self._js.shared.log.error(
                f"JetStream consumer '{consumer.name}' of {self._stream} is offline while this server leads: {error}"
            )
            return None
        consumer.problem = ""
        self._stream.add_consumer(opened)
        targets.direct(self._js, self._stream, opened)
        opened.start()
        return opened

    def _restored(self, committed: CommittedConsumer) -> Consumer:
        """Return a consumer with its committed state; if the state is damaged, the consumer begins again.

        Raises:
            NewerState: a newer server has committed changes that this server does not know.
        """
        opened = self._new(committed)
        try:
            ahead = restore(opened, committed.state, [bytes(committed.changes)])
        except consumer_record.BadState as error:
            start = restart(committed.config, self._stream.store)
            self._js.shared.log.error(
                f"JetStream consumer '{opened.path}' has a state that cannot be read, and begins again at sequence"
                f" {start.seq}: {error}"
            )
            opened = self._new(committed)
            opened.begin(start, written=True)
            ahead = True
        opened.acks.pending.sent_by(self._js.shared.clock.now_ns())
        opened.acks.changes.lost = ahead
        return opened

    def _new(self, committed: CommittedConsumer) -> Consumer:
        file = ProposedState(_replica(self._stream), committed)
        return Consumer(self._resources, committed.config, committed.name, committed.created_ns, file)

    def configure(self, consumer: StreamConsumer, config: ConsumerConfig) -> None:
        """Apply a changed configuration to an open consumer."""
        _opened(consumer).update(config)
        targets.direct(self._js, self._stream, _opened(consumer))

    def rewrite(self, consumer: StreamConsumer) -> None:
        """Make an open consumer propose a snapshot with its next changes, or after RETRY_NS if there are none."""
        opened = _opened(consumer)
        opened.acks.changes.lost = True
        self._js.shared.timers.at(self._js.shared.clock.now_ns() + RETRY_NS, opened.resume)


def create(
    stream: Stream, name: str, config: ConsumerConfig, created_ns: int, start: Start
) -> Generator[Step, None, Consumer]:
    """Create a consumer; return it when its creation is committed.

    Raises:
        ApiError: the consumer was deleted in the meantime, or the result is unknown.
    """
    state = consumer_record.first_state(start)
    yield from _replica(stream).operate(entries.creation(name, created_ns, config, state))
    return _found(stream, name)


def configure(stream: Stream, consumer: Consumer, config: ConsumerConfig) -> Generator[Step, None, None]:
    """Change the configuration of a consumer.

    Raises:
        ApiError: the consumer was deleted in the meantime, or the result is unknown.
    """
    yield from _replica(stream).operate(entries.configuration(consumer.name, consumer.created_ns, config))
    _found(stream, consumer.name)


def delete(stream: Stream, consumer: Consumer) -> Generator[Step, None, None]:
    """Delete a consumer.

    Raises:
        ApiError: the consumer was deleted in the meantime, or the result is unknown.
    """
    yield from _replica(stream).operate(entries.deletion(consumer.name, consumer.created_ns))


def keep_reset(stream: Stream, consumer: Consumer) -> Generator[Step, None, None]:
    """Propose the state of a reset consumer; return when it is committed.

    Raises:
        ApiError: the result is unknown.
    """
    file = consumer.keeper.file
    assert isinstance(file, ProposedState)
    consumer.acks.changes.take()
    consumer.acks.changes.lost = False
    payload = file.payload_of(consumer_record.snapshot_of(consumer))
    try:
        yield from _replica(stream).operate(payload)
    except errcodes.ApiError:
        consumer.acks.changes.lost = True
        raise


def reopen(js: JetStream, stream: Stream, consumer: Consumer) -> None:
    """Reopen a consumer after a fault, from its committed state."""
    name = consumer.name
    committed = _replica(stream).consumers.close_one(name, "fault")
    nothing_new = ProposedState(_replica(stream), committed).payload_of(b"")

    def steps() -> Generator[Step, None, None]:
        try:
            yield from _replica(stream).operate(
                nothing_new
            )  # after this operation, all earlier changes are either committed or lost
        except errcodes.ApiError:
            pass
        _replica(stream).consumers.open_one(committed)

    js.account.turn.go_on(steps())


def adopt_steps(
    js: JetStream, stream: Stream, resources: Resources, memory: Sequence[StoredConsumer]
) -> Generator[Step, None, None]:
    """Move the consumers of a stream that had one replica into the stream's group, and remove their files.

    `memory` lists the consumers without files.
    """
    files = js.files.recover_consumers(stream.name) if stream.config.storage == FILE else ()
    for stored in (*files, *memory):
        try:
            state = stored_state(stream, stored, resources._replace(metadata=None))
            made = entries.creation(stored.name, stored.created_ns, stored.config, state)
            yield from _replica(stream).operate(made)
        except (errcodes.ApiError, *NONSENSE, PyjsError) as error:
            js.shared.log.error(f"Consumer '{stored.name}' of {stream} is not in its group: {error}")
            if not _is_there(stream, stored):
                continue
        if stored.file is None:
            continue
        with suppress(StoreFailed):  # the next leader will try again
            yield from js.shared.metadata.commit(js.files.removed_consumer(stream.name, stored.name))


def stored_state(stream: Stream, stored: StoredConsumer, resources: Resources) -> bytes:
    """Return the stored state of a consumer; if that state is unreadable, return the state in which it begins again.

    Raises:
        BadState: the stored state is invalid.
    """
    if stored.snapshot is None:
        return consumer_record.first_state(restart(stored.config, stream.store))
    consumer = Consumer(resources, stored.config, stored.name, stored.created_ns)
    restore(consumer, stored.snapshot, stored.deltas)
    return consumer_record.snapshot_of(consumer)


def not_open(consumer: StreamConsumer) -> errcodes.ApiError:
    """Return the error for a request about a consumer that is not open on this leader."""
    if isinstance(consumer, CommittedConsumer) and consumer.problem:
        return errcodes.CONSUMER_OFFLINE_REASON.error(err=consumer.problem)
    return errcodes.LeaderChanged()


def _is_there(stream: Stream, stored: StoredConsumer) -> bool:
    """Return whether the group of the stream already has this consumer."""
    found = _replica(stream).consumers.committed.get(stored.name)
    return found is not None and found.created_ns == stored.created_ns


def expire(js: JetStream, stream: Stream, consumer: Consumer) -> None:
    """Begin to delete a consumer that was unused for its inactive_threshold.

    If the deletion fails, the consumer resumes after RETRY_NS.
    """

    def steps() -> Generator[Step, None, None]:
        try:
            yield from delete(stream, consumer)
        except errcodes.ApiError:
            if not consumer.closed:
                js.shared.timers.at(js.shared.clock.now_ns() + RETRY_NS, consumer.resume)

    js.account.turn.go_on(steps())


def _replica(stream: Stream) -> Replica:
    assert stream.replica is not None
    return stream.replica


def _found(stream: Stream, name: str) -> Consumer:
    """Return an open consumer after an operation.

    Raises:
        ApiError: the consumer was deleted, or this replica is no longer the leader.
    """
    found = stream.consumers.get(name)
    errcodes.CONSUMER_NOT_FOUND.raise_if(found is None)
    if not isinstance(found, Consumer):
        raise errcodes.LeaderChanged(is_unknown=True)
    return _opened(found)


def _opened(consumer: StreamConsumer | None) -> Consumer:
    assert isinstance(consumer, Consumer)
    return consumer
