"""Creates, updates, deletes and recovers the consumers of a stream.

This module applies the rules of the stream and the limits of its account, gives a new consumer its resources and its
file, and publishes advisories. API subjects and JSON are handled by api/consumers.py.

Source: nats.docs "Consumers"; order of checks probed on nats-server 2.15.1.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyjs.base.errors import NONSENSE, StoreFailed
from pyjs.base.nuid import token
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import INTEREST, MEMORY, WORKQUEUE
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.consumer_requests import CreateRequest
from pyjs.jetstream.config.declared import changed
from pyjs.jetstream.config.offline import NewerConsumer
from pyjs.jetstream.consumer import record as consumer_record
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.info import know_pending
from pyjs.jetstream.consumer.replay import clamp, restore
from pyjs.jetstream.consumer.reset import reset as start_again
from pyjs.jetstream.consumer.reset import reset_seq
from pyjs.jetstream.consumer.resources import Resources
from pyjs.jetstream.consumer.start import SEARCH_STEP, Start, count, restart, select_start
from pyjs.jetstream.dead_letters import targets
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.rules import consumer as consumer_rules
from pyjs.jetstream.rules import dead_letters as dead_letter_rules
from pyjs.jetstream.rules.consumer import ConsumerLimits
from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.last_seqs import Count

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import TypeVar

    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Sink
    from pyjs.jetstream.consumer.record import StateFile
    from pyjs.jetstream.files.consumer_files import RemovedConsumer
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.stream.stream_consumer import StreamConsumer

    Found = TypeVar("Found")

# follows the name of a stream in the name of the gate for its searches; no consumer can have this name
SEARCH = ".>"
NAME_LENGTH = 8  # characters of a generated name


def create_or_update(
    js: JetStream, stream: Stream, request: CreateRequest, covered: str | None = consumer_rules.NOT_SEARCHED
) -> Generator[Step, None, Consumer]:
    """Create or update a consumer, as `request` allows; return the consumer when the change is durable.

    `covered` is the result of `consumer_rules.search_filters`. The caller must have entered the gate of the stream
    and, if the consumer has a name, the gate of the consumer with exclusive access.

    Raises:
        ApiError: the request is refused.
    """
    config = request.config
    existing = stream.consumers.get(config.durable_name or config.name)
    if existing is not None:
        config = changed(config, pause_until_ns=existing.config.pause_until_ns)
    config = consumer_rules.with_required_level(config)
    limits = limits_of(js)
    config = consumer_rules.normalised(config, stream.config, limits, request.pedantic)
    consumer_rules.check(config, stream.config, limits, covered)
    known = existing.config if isinstance(existing, Consumer) else None
    dead_letter_rules.check_consumer(config, stream.config, js.config_of, known)
    if existing is None:
        errcodes.CONSUMER_DOES_NOT_EXIST.raise_if(request.action == "update")
        return (yield from _create(js, stream, config))
    if not isinstance(existing, Consumer):
        raise not_open(existing)
    if request.action == "create" and not consumer_rules.same_but_versions(config, existing.config):
        raise errcodes.CONSUMER_ALREADY_EXISTS.error()
    return (yield from _update(js, stream, existing, config))


def not_open(consumer: StreamConsumer) -> errcodes.ApiError:
    """Return the error for a request about a replicated consumer that this leader has not opened."""
    # imported lazily, in 7 ms; most servers have no replicated streams
    from pyjs.jetstream.manage import replicated_consumers

    return replicated_consumers.not_open(consumer)


def pause(
    js: JetStream, stream: Stream, consumer: Consumer, until_ns: int | None
) -> Generator[Step, None, None]:
    """Pause deliveries until the wall-clock time `until_ns`, or resume them if it is None.

    Return when the change is durable.
    """
    config = consumer_rules.with_required_level(changed(consumer.config, pause_until_ns=until_ns))
    yield from _change_config(js, stream, consumer, config)


def reset(consumer: Consumer, wanted: int) -> int:
    """Reset a consumer to the sequence `wanted`, or to the one after its ack floor if `wanted` is 0.

    Return the sequence. The caller must then run `keep_reset`.

    Raises:
        ApiError: the sequence is not allowed (10204).
    """
    try:
        seq = reset_seq(consumer, wanted)
    except ValueError as error:
        raise errcodes.CONSUMER_INVALID_RESET.error(err=error) from None
    start_again(consumer, seq)
    return seq


def keep_reset(js: JetStream, stream: Stream, consumer: Consumer) -> Generator[Step, None, None]:
    """Wait until the state of a reset consumer is durable; then let an interest stream remove unneeded messages.

    Raises:
        ApiError: the state could not be written (10204), or was perhaps not committed by the replicas.
    """
    ended: list[Exception | None] = []

    def park(chore: Chore) -> None:
        def done(failure: Exception | None) -> None:
            ended.append(failure)
            consumer.turn.chores.append(chore)

        consumer.keeper.when_rewritten(done)

    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        yield from replicated_consumers.keep_reset(stream, consumer)
    elif consumer.keeper.file is not None:
        yield park
        if ended[0] is not None:
            raise errcodes.CONSUMER_INVALID_RESET.error(err=ended[0])
    if stream.config.retention == INTEREST and _is_open(js, stream):
        stream.sweep()


def delete(js: JetStream, stream: Stream, consumer: Consumer) -> Generator[Step, None, None]:
    """Delete a consumer and its files; return when this is durable. If the deletion fails, restore the consumer.

    Raises:
        ApiError: the files could not be removed (10051), or the deletion was perhaps not committed by the replicas.
    """
    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        yield from replicated_consumers.delete(stream, consumer)
        return
    change = _remove(js, stream, consumer)
    if change is None:
        return
    try:
        yield from js.shared.metadata.commit(change)
    except StoreFailed as error:
        js.shared.log.error(f"JetStream consumer '{consumer.path}' is not deleted: {error}")
        if _is_open(js, stream) and consumer.name not in stream.consumers:
            reopen(js, stream, consumer.name)
        raise errcodes.STREAM_GENERAL.error(err=error.reason) from error


def expire_all(accounts: dict[str, JetStream], consumers: list[Sink]) -> None:
    """Delete the given consumers, which were unused for their inactive_threshold.

    Skip consumers that no longer exist, and those with dead letters that are not stored yet.
    """
    for consumer in consumers:
        assert isinstance(consumer, Consumer)
        js = accounts[consumer.account.name]
        stream = js.streams.get(consumer.stream_name)
        if stream is None or stream.consumers.get(consumer.name) is not consumer:
            continue
        if consumer.letters is not None and consumer.acks.exhausted:
            continue  # its dead letters wait to be stored
        _expire(js, stream, consumer)


def _expire(js: JetStream, stream: Stream, consumer: Consumer) -> None:
    """Delete a consumer and its files, without waiting for the disk."""
    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        replicated_consumers.expire(js, stream, consumer)
        return
    change = _remove(js, stream, consumer)
    path = consumer.path

    def done(failure: Exception | None) -> None:
        if failure is not None:
            js.shared.log.error(f"JetStream consumer '{path}' is deleted and may come back: {failure}")

    if change is not None:
        js.shared.metadata.submit(change, done)


def _remove(js: JetStream, stream: Stream, consumer: Consumer) -> RemovedConsumer | None:
    """Close a consumer; return the change that removes its files, or None if it has no files."""
    stream.remove_consumer(consumer.name)
    consumer.stop("deleted")
    return None if consumer.keeper.file is None else js.files.removed_consumer(stream.name, consumer.name)


def recover_steps(js: JetStream, stream: Stream) -> Generator[None, None, bool]:
    """Open every consumer of a recovered stream, in steps. Log those that cannot be opened, and keep their files.

    Return whether `stream.sweep` may remove messages that no open consumer needs. It may not if there is no consumer,
    or if a consumer could not be opened.

    Raises:
        NewerConsumer: a newer version wrote a consumer.
    """
    for stored in js.files.recover_consumers(stream.name):
        yield
        try:
            consumer = _restored(js, stream, stored)
        except consumer_record.NewerState as error:
            raise NewerConsumer(stored.name, str(error)) from error
        except (*NONSENSE, MemoryError) as error:
            js.shared.log.error(
                f"JetStream consumer '{stored.name}' of '{stream.name}' is not recovered: {error}"
            )
            continue
        while not stream.store.catalogue.learn_subjects(_filter_of(stream, stored.config), SEARCH_STEP):
            yield
        _open(js, stream, consumer)
    return bool(stream.consumers) and len(stream.consumers) == js.files.num_consumers(stream.name)


def abandon(js: JetStream, stream: Stream, consumer: Consumer) -> bool:
    """Close a consumer after a fault. Return whether the caller must open it again with `reopen`.

    A consumer without files is deleted. A replicated consumer is opened again from its replica.
    """
    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        replicated_consumers.reopen(js, stream, consumer)
        return False
    if consumer.keeper.file is None:
        _expire(js, stream, consumer)
        return False
    stream.remove_consumer(consumer.name, for_good=False)
    consumer.stop("fault")
    return True


def reopen(js: JetStream, stream: Stream, name: str) -> None:
    """Open a consumer from its files, if they can be read; no thread may be writing them."""
    stored = js.files.reopen_consumer(stream.name, name)
    if stored is not None:
        _open(js, stream, _restored(js, stream, stored))


def open_stored(js: JetStream, stream: Stream, stored: StoredConsumer) -> None:
    """Open a consumer from the state that a restore has read."""
    _open(js, stream, _restored(js, stream, stored))


def in_memory(stream: Stream) -> list[StoredConsumer]:
    """Return the consumers of an open stream that have no files."""
    return [
        StoredConsumer(
            each.name, each.config, each.created_ns, consumer_record.snapshot_of(each), (), (), None
        )
        for each in stream.consumers.values()
        if isinstance(each, Consumer) and each.keeper.file is None
    ]


def _restored(js: JetStream, stream: Stream, stored: StoredConsumer) -> Consumer:
    """Return a consumer with its stored state.

    If the state is unreadable, the consumer begins at the first message, or at its opt_start_seq if that is higher.

    Raises:
        NewerState: a newer version wrote the state.
    """
    problems = list(stored.problems)
    if stored.snapshot is not None:
        consumer = _from_stored(js, stream, stored)
        try:
            ahead = restore(consumer, stored.snapshot, stored.deltas)
        except consumer_record.BadState as error:
            problems.append(str(error))
        else:
            consumer.acks.pending.sent_by(js.shared.clock.now_ns())
            if ahead or problems:
                _keep_state(js, consumer)
            return consumer
    consumer = _from_stored(js, stream, stored)
    start = restart(stored.config, stream.store)
    js.shared.log.error(
        f"JetStream consumer '{consumer.path}' lost its state and begins again at sequence {start.seq},"
        f" messages that it had acknowledged are delivered again: {'; '.join(problems)}"
    )
    try:
        consumer.begin(start)
    except (OSError, StoreFailed) as error:
        js.shared.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {error}")
    return consumer


def _from_stored(js: JetStream, stream: Stream, stored: StoredConsumer) -> Consumer:
    return Consumer(resources_of(js, stream), stored.config, stored.name, stored.created_ns, stored.file)


def _keep_state(js: JetStream, consumer: Consumer) -> None:
    """Rewrite the state of a consumer whose files were damaged or ahead of the stream; a failure is only logged."""
    try:
        consumer.keeper.rewrite(consumer)
    except (OSError, StoreFailed) as error:
        js.shared.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {error}")


def limits_of(js: JetStream) -> ConsumerLimits:
    """Return the limits of the server and the account for consumers."""
    server = js.options.limits
    return ConsumerLimits(server.max_ack_pending, server.max_request_batch, max(js.limits.max_ack_pending, 0))


def _create(js: JetStream, stream: Stream, config: ConsumerConfig) -> Generator[Step, None, Consumer]:
    start, counted = yield from _search(js, stream, config)
    errcodes.STREAM_NOT_FOUND.raise_if(not _is_open(js, stream))
    most = js.max_consumers_of(stream)
    coming = js.coming.get(stream.name, {})
    if not config.direct and 0 < most <= len(stream.listing) + sum(
        not each.direct for each in coming.values()
    ):
        raise errcodes.MAXIMUM_CONSUMERS_LIMIT.error()
    if stream.config.retention == WORKQUEUE and not (config.direct or config.sourcing):
        consumer_rules.check_workqueue(config, stream.claims.tree)
    if len(config.durable_name) > consumer_rules.NAME_SIZE_MAX:
        raise errcodes.CONSUMER_NAME_TOO_LONG.error(max=consumer_rules.NAME_SIZE_MAX)
    if len(config.name) > consumer_rules.NAME_SIZE_MAX and is_durable(stream, config):
        raise errcodes.CONSUMER_CREATE.error(err="error creating store for consumer")
    name = config.durable_name or config.name or _new_name(js, stream)
    config = consumer_rules.mortal(config)
    created_ns = js.shared.clock.wall_ns()
    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        with _coming(js, stream, name, config):
            consumer = yield from replicated_consumers.create(stream, name, config, created_ns, start)
        _take_count(consumer, counted)
        if js.shared.member is not None:
            js.shared.member.announcer.leads_consumer(stream, consumer.name, consumer.config)
    else:
        consumer = yield from _new(js, stream, name, config, created_ns, start, counted)
    consumer.events.send("created", js.shared.clock.wall_ns(), action="create")
    if consumer.paused_until > stream.turn.now:
        consumer.tell_pause()
    return consumer


def _update(
    js: JetStream, stream: Stream, consumer: Consumer, config: ConsumerConfig
) -> Generator[Step, None, Consumer]:
    if stream.config.retention == WORKQUEUE:
        consumer_rules.check_unshared(config, stream.claims.tree, consumer.name)
    old = consumer.config
    # A consumer created as ephemeral keeps an inactive_threshold even if an update makes it durable.
    if not old.durable and config.inactive_threshold_ns != old.inactive_threshold_ns:
        config = consumer_rules.mortal(config, ephemeral=True)
    bound = old.push and js.account.has_interest(old.deliver_subject.encode())
    consumer_rules.check_update(old, config, bound)
    if config == old:
        return consumer
    counted = None
    if old.filters != config.filters:
        matches = _filter_of(stream, config)
        counted = yield from _within_search(
            js, stream, count(stream.store, matches, consumer.cursor.next_seq)
        )
    yield from _change_config(js, stream, consumer, config)
    _take_count(consumer, counted)
    return consumer


def _change_config(
    js: JetStream, stream: Stream, consumer: Consumer, config: ConsumerConfig
) -> Generator[Step, None, None]:
    """Write and apply an updated configuration."""
    if stream.replica is not None:
        # imported lazily, in 7 ms; most servers have no replicated streams
        from pyjs.jetstream.manage import replicated_consumers

        yield from replicated_consumers.configure(stream, consumer, config)
        return
    old = consumer.config
    yield from _write_config(js, stream, consumer, config)
    consumer.update(config)
    targets.direct(js, stream, consumer)
    if old.filters != config.filters:
        stream.update_interest(consumer)


def _search(
    js: JetStream, stream: Stream, config: ConsumerConfig
) -> Generator[Step, None, tuple[Start, Count | None]]:
    """Return the start of a new consumer, and the count of its messages or None.

    There is no count if the start has `skips`, or if `count` returns None.
    """

    def steps() -> Generator[Step, None, tuple[Start, Count | None]]:
        store, matches = stream.store, _filter_of(stream, config)
        start = yield from select_start(config, store, matches, stream.config.max_msgs_per_subject)
        return start, None if start.skips else (yield from count(store, matches, start.seq))

    return (yield from _within_search(js, stream, steps()))


def _filter_of(stream: Stream, config: ConsumerConfig) -> StoreFilter:
    return stream.store.make_filter(tuple(subject.encode() for subject in config.filters))


def _take_count(consumer: Consumer, counted: Count | None) -> None:
    """Set the consumer's num_pending to the result `counted`, unless messages were removed since the count."""
    if counted is not None and counted.is_exact:
        consumer.cursor.take_count(counted.msgs, counted.up_to)


def count_pending(js: JetStream, stream: Stream, consumer: Consumer) -> Generator[Step, None, None]:
    """Count num_pending of a consumer, in steps if there are many messages; return when it is known."""
    if consumer.cursor.count_some():
        return
    filters, matches = consumer.filters, stream.store.make_filter(consumer.filters)
    counted = yield from _within_search(js, stream, count(stream.store, matches, consumer.cursor.next_seq))
    if not consumer.closed and consumer.filters == filters:
        _take_count(consumer, counted)
    yield from know_pending(consumer)


def _within_search(
    js: JetStream, stream: Stream, steps: Generator[Step, None, Found]
) -> Generator[Step, None, Found]:
    """Run `steps` when no other search of the stream runs, since each may need much memory."""
    return (yield from js.gates.within(f"{stream.name}{SEARCH}", True, lambda: steps))


def _open(js: JetStream, stream: Stream, consumer: Consumer) -> None:
    stream.add_consumer(consumer)
    targets.direct(js, stream, consumer)
    consumer.start()


def resources_of(js: JetStream, stream: Stream) -> Resources:
    """Return the parts that the consumers of a stream use."""
    shared = js.shared
    return Resources(
        stream.name,
        js.account,
        stream.store,
        shared.timers,
        shared.rng,
        shared.log,
        js.options.domain,
        stream.config.max_msgs_per_subject,
        stream.config.max_msg_size if stream.config.max_msg_size > 0 else shared.max_payload,
        shared.ack_v2,
        js.options.sync_always,
        shared.metadata,
    )


def _new_name(js: JetStream, stream: Stream) -> str:
    while True:
        name = token(js.shared.rng, NAME_LENGTH)
        if name not in stream.consumers and name not in js.coming.get(stream.name, ()):
            return name


def _new(
    js: JetStream,
    stream: Stream,
    name: str,
    config: ConsumerConfig,
    created_ns: int,
    start: Start,
    counted: Count | None,
) -> Generator[Step, None, Consumer]:
    """Create a consumer and its files on this server, and open it."""
    file = None
    if is_durable(stream, config):
        file = yield from _new_file(js, stream, name, config, created_ns, start)
    consumer = Consumer(resources_of(js, stream), config, name, created_ns, file)
    consumer.begin(start, written=True)
    if start.seq < stream.store.first_seq:  # messages were removed since the search
        clamp(consumer)
    else:
        _take_count(consumer, counted)
    _open(js, stream, consumer)
    return consumer


def is_durable(stream: Stream, config: ConsumerConfig) -> bool:
    """Return whether a consumer with this configuration has files, if its stream has no replicas."""
    return not (config.direct or config.mem_storage or stream.config.storage == MEMORY)


def _new_file(
    js: JetStream, stream: Stream, name: str, config: ConsumerConfig, created_ns: int, start: Start
) -> Generator[Step, None, StateFile]:
    """Create the state file of a consumer; return the file when it is durable.

    Until then, the consumer counts towards the limits.

    Raises:
        ApiError: the write failed, so the consumer was not created (10012).
    """
    with _coming(js, stream, name, config):
        try:
            state = consumer_record.first_state(start)
            change = js.files.new_consumer(stream.name, name, config, created_ns, state)
            yield from js.shared.metadata.commit(change)
            if not _is_open(js, stream):
                raise StoreFailed(change.path, "the stream was closed")
            return js.files.open_consumer(stream.name, change)
        except StoreFailed as error:
            js.shared.log.warn(
                f"Consumer create failed for '{js.account.name} > {stream.name} > {name}': {error}"
            )
            raise errcodes.CONSUMER_CREATE.error(err="error creating store for consumer") from error


@contextmanager
def _coming(js: JetStream, stream: Stream, name: str, config: ConsumerConfig) -> Iterator[None]:
    """Count a consumer towards the limits while it is being created; in a work queue, also claim its subjects."""
    coming = js.coming.setdefault(stream.name, {})
    coming[name] = config
    if stream.config.retention == WORKQUEUE:
        stream.claims.put(name, config)
    try:
        yield
    except BaseException:
        if name not in stream.consumers:
            stream.claims.remove(name)
        raise
    finally:
        del coming[name]
        if not coming:
            js.coming.pop(stream.name, None)


def _write_config(
    js: JetStream, stream: Stream, consumer: Consumer, config: ConsumerConfig
) -> Generator[Step, None, None]:
    """Write an updated configuration; return when it is durable.

    Raises:
        ApiError: the write failed and nothing was changed (10012), or the consumer was deleted in the meantime
            (10014).
    """
    if not is_durable(stream, config):
        return
    claims = stream.claims if stream.config.retention == WORKQUEUE else None
    if claims is not None:
        claims.put(consumer.name, config)
    try:
        change = js.files.changed_consumer(stream.name, consumer.name, config, consumer.created_ns)
        yield from js.shared.metadata.commit(change)
    except StoreFailed as error:
        if claims is not None and stream.consumers.get(consumer.name) is consumer:
            claims.put(consumer.name, consumer.config)
        raise errcodes.CONSUMER_CREATE.error(err=error) from error
    if stream.consumers.get(consumer.name) is not consumer or not _is_open(js, stream):
        raise errcodes.CONSUMER_NOT_FOUND.error()


def _is_open(js: JetStream, stream: Stream) -> bool:
    """Return whether `stream` is still open, since other work may have run between two steps."""
    return js.streams.get(stream.name) is stream
