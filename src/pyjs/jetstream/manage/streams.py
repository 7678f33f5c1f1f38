"""Creates, updates, deletes and recovers the streams of an account.

This module applies the rules and the limits of the account and its server. It gives a new stream its store and its
subjects, and calls the observer. API subjects and JSON are handled by api/streams.py. Long because all these
operations begin with the same checks and end with the same report.

Source: nats.docs "JetStream"; order of checks probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.jetstream import advisories, errcodes
from pyjs.jetstream.config.choices import ASYNC, FILE, INTEREST, MEMORY
from pyjs.jetstream.config.offline import NewerConsumer, Offline
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.dead_letters import targets
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.files.removals import MemoryRelease
from pyjs.jetstream.manage import consumers
from pyjs.jetstream.manage.expiry import Expiry
from pyjs.jetstream.manage.parked import KnownIds, Parked
from pyjs.jetstream.manage.purging import drop_steps, lower_limits
from pyjs.jetstream.manage.reservations import Reservation
from pyjs.jetstream.manage.store_probe import StoreProbe
from pyjs.jetstream.rules import dead_letters as dead_letter_rules
from pyjs.jetstream.rules import sources as source_rules
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.jetstream.stream.features.special import SpecialPublishes
from pyjs.jetstream.stream.relearn import (
    copied_steps,
    relearn_steps,
    replica_steps,
    rollup_steps,
    schedule_steps,
    window_parts,
)
from pyjs.jetstream.stream.republish import Republisher
from pyjs.jetstream.stream.stream import Stream
from pyjs.store import searches
from pyjs.store.file.store import FileStore
from pyjs.store.format.layout import file_name
from pyjs.store.format.window_file import PART_IDS
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore
from pyjs.subjects.overlap import at_once, first_overlap
from pyjs.subjects.transform import open_transform

SUBSCRIBE_STEP = 256  # number of subscriptions that a new stream adds in one turn: a millisecond
STOP_STEP = 64  # number of consumers of a deleted stream that are stopped in one turn: a millisecond
RELEASE_STEP = 4000  # number of sequences examined in one step
RETRY_NS = 5 * NS_PER_S  # ns between two attempts to open postponed streams

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.manage.persist import StoredConsumer
    from pyjs.jetstream.mirror.sourcing import Inflow
    from pyjs.store.format.tail_file import Tail, Tails

    Found: TypeAlias = tuple[StreamConfig, int, StreamStore]  # configuration, creation time, store


class SubjectVerdict(NamedTuple):
    """The overlaps of the subjects of a configuration with each other and with other streams."""

    subjects: tuple[str, ...]  # the valid subjects
    within: str | None  # the first subject that overlaps with another one of the same configuration
    taken: bool  # whether a subject overlaps with that of another stream
    version: int  # SubjectTree.version of all streams' subjects at the time of the search


def judge_subjects(js: JetStream, config: StreamConfig) -> Generator[None, None, SubjectVerdict]:
    """Search for overlaps of the subjects of `config`, in steps if there are many; return the result."""
    subjects = stream_rules.valid_subjects(config)
    within = yield from first_overlap(subjects)
    taken, version = False, js.subjects.version
    for at, subject in enumerate(subjects):
        if at % SUBSCRIBE_STEP == SUBSCRIBE_STEP - 1:
            yield
        if (yield from js.subjects.overlapping(subject, config.name)):
            taken = True
            break
    return SubjectVerdict(tuple(subjects), within, taken, version)


def check(
    js: JetStream,
    config: StreamConfig,
    pedantic: bool,
    verdict: SubjectVerdict | None = None,
) -> StreamConfig:
    """Check a configuration, and return it with defaults.

    `verdict` is the result of `judge_subjects`, or None before this search.

    Raises:
        ApiError: the configuration violates a rule; the error is that of the first violation.
    """
    within = stream_rules.NOT_SEARCHED if verdict is None else verdict.within
    return stream_rules.check(config, js.options, js.limits, pedantic, js.config_of, within)


def create(
    js: JetStream,
    config: StreamConfig,
    pedantic: bool = False,
    verdict: SubjectVerdict | None = None,
) -> Generator[Step, None, Stream]:
    """Create a stream and return it when it is durable, or return an existing stream with an equal configuration.

    Raises:
        ApiError: the request is refused.
        StoreFailed: the directory of the stream cannot be written.
    """
    config = config.with_required_level()
    stream_rules.check_create(config)
    _check_count(js, config)
    config = check(js, config, pedantic, verdict)
    stream_rules.check_single_server(config)
    if len(config.subjects) > SUBSCRIBE_STEP:
        yield None
        _check_count(js, config)
    errcodes.STREAM_NAME_EXIST.raise_if(config.name in js.offline)
    errcodes.STREAM_CREATE.raise_if(config.name in js.held, err="the stream is stored and not open yet")
    existing = js.streams.get(config.name)
    if existing is not None:
        if existing.config.same_as(config):
            return existing
        raise errcodes.STREAM_NAME_EXIST.error()
    dead_letter_rules.check_stream(config, js.config_of)
    _check_room(js, config, max(config.max_bytes, 0))
    _check_overlap(js, config, verdict)
    if config.mirror or config.sources:
        source_rules.check_filters(config)
    return (yield from create_assigned(js, config, js.shared.clock.wall_ns()))


def create_assigned(js: JetStream, config: StreamConfig, created_ns: int) -> Generator[Step, None, Stream]:
    """Create a stream that passed all checks, either here or on the leader of the cluster's metadata.

    Raises:
        ApiError: a stored stream of this name is not open yet, or the stream or JetStream was closed in the meantime.
        StoreFailed: the directory of the stream cannot be written.
    """
    errcodes.STREAM_CREATE.raise_if(config.name in js.held, err="the stream is stored and not open yet")
    with Reservation(js, config):
        store = yield from _new_store(js, config, created_ns)
    stream = _open(js, config, store, created_ns)
    yield from _subscribe_steps(js, stream)
    _join(js, stream)
    if js.observer is not None:
        js.observer.stream_opened(stream, recovered=False)
    tell(js, stream.name, "create")
    return stream


# -- replicas ---------------------------------------------------------------------------------------------------


def new_replica(
    js: JetStream, config: StreamConfig, created_ns: int, group: int
) -> Generator[Step, None, Parked]:
    """Create the empty replica of a stream on this server; return it when its directory is durable.

    Raises:
        ApiError: JetStream was disabled for the account in the meantime.
        StoreFailed: the directory cannot be written.
    """
    return Parked(config, created_ns, (yield from _new_store(js, config, created_ns, group)))


def make_replica(js: JetStream, stream: Stream, group: int) -> Generator[Step, None, Parked]:
    """Close an open stream that gets more replicas, and return it with its store as the replica of `group`.

    The messages of a file stream are made durable.

    Raises:
        StoreFailed: the stream cannot be reopened; its files stay.
    """
    _end_copies(js, stream)
    _close(js, stream, "shutdown")
    store = stream.store
    if isinstance(store, FileStore):
        store.close()
        for found in js.files.reopen_steps(stream.name):
            if found is not None:
                config, created_ns, store = found
                store.replicate(group)
                return Parked(config, created_ns, store)
            yield None
        raise StoreFailed(str(stream), "its files cannot be read")
    store.replicate(group)
    return Parked(stream.config, stream.created_ns, store)


def open_replica(
    js: JetStream,
    found: Parked,
    *,
    recovered: bool = True,
    ids: KnownIds | None = None,
    offered: bool = True,
) -> Generator[Step, None, Stream]:
    """Open the stream of a replica as a follower, which subscribes to no subjects.

    `ids` is the duplicate window, or None if the window must be read from the messages. The replica answers direct
    gets only if `offered`, which must be false as long as the replica lacks messages that other replicas have.

    Raises:
        PyjsError, OSError, MemoryError: the messages cannot be read. The files stay.
    """
    config, created_ns, store = found
    if config.first_seq and not (
        store.applied_index or store.msgs
    ):  # a restart loses a first_seq that no entry records
        store.set_first_seq(config.first_seq)
    stream = _open(js, config, store, created_ns)
    stream.await_replica()
    try:
        yield from replica_steps(stream) if ids is None else copied_steps(stream, *ids)
    except BaseException as error:
        _close(js, stream, "fault", StoreFailed(str(stream), str(error)))
        if config.storage == FILE:
            js.files.release(store)
        raise
    if offered and js.observer is not None:
        js.observer.stream_opened(stream, recovered=recovered)
    return stream


def make_single(js: JetStream, stream: Stream, memory: list[StoredConsumer]) -> Generator[Step, None, Stream]:
    """Close a replica, and open it again as a stream with one replica.

    The stored configuration must already have one replica. `memory` lists the consumers without files.

    Raises:
        StoreFailed: the stream cannot be reopened; its files stay.
    """
    config, name, store = replace(stream.config, num_replicas=1), stream.name, stream.store
    ids = KnownIds(stream.dedupe.dump(0, len(stream.dedupe)), len(stream.dedupe), stream.dedupe.last_msg_id)
    _end_copies(js, stream)
    _close(js, stream, "shutdown")
    if isinstance(store, FileStore):
        store.close()
        js.files.save_window(name, window_parts(stream, PART_IDS) if len(stream.dedupe) else None)
        yield from reopen_steps(js, name)
    else:
        yield from open_restored(js, config, store, stream.created_ns, ids)
    if name not in js.streams:
        raise StoreFailed(str(stream), "its files cannot be read")
    for stored in memory:
        consumers.open_stored(js, js.streams[name], stored)
    return js.streams[name]


def listen(js: JetStream, stream: Stream, *, on: bool) -> None:
    """Subscribe a stream to its subjects, or unsubscribe it; among replicas, only the leader is subscribed."""
    _subscribe(js, stream, stream.config.subjects if on else ())


def _end_copies(js: JetStream, stream: Stream) -> None:
    """Stop copying into and out of a stream that will be closed and reopened."""
    if js.inflows:
        from pyjs.jetstream.mirror import sourcing

        sourcing.closing(js, stream)


def copy_origins(js: JetStream, stream: Stream, *, on: bool) -> None:
    """Start or stop the mirror or sources of a stream; among replicas, only the leader copies."""
    if js.inflows or stream.config.mirror or stream.config.sources:
        from pyjs.jetstream.mirror import sourcing

        (sourcing.changed if on else sourcing.stop_copying)(js, stream)


def reconfigured(js: JetStream, stream: Stream, old: StreamConfig, *, leads: bool) -> None:
    """Apply the new configuration of a replica in place of `old`; its `Replica` object is not changed here.

    If `leads`, also update the subscriptions and copies of the stream, and publish the advisory.
    """
    _reserve(js, old, -1)
    _reserve(js, stream.config, 1)
    _set_subjects(js, stream)
    targets.direct_all(js, stream, old)
    if leads:
        listen(js, stream, on=True)
        copy_origins(js, stream, on=True)
        tell(js, stream.name, "modify")
    if js.observer is not None:
        js.observer.stream_changed(stream, old)


def check_limits(js: JetStream, config: StreamConfig) -> None:
    """Raise ApiError if a stream exceeds the limits of the account or the server."""
    _check_count(js, config)
    _check_room(js, config, max(config.max_bytes, 0))


def check_restored(js: JetStream, config: StreamConfig) -> None:
    """Raise ApiError if a stream that is being restored exceeds a limit or conflicts with other streams."""
    errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.raise_if(config.name in js.elsewhere)
    check_limits(js, config)
    _check_overlap(js, config, None)


def open_restored(
    js: JetStream, config: StreamConfig, store: StreamStore, created_ns: int, ids: KnownIds | None = None
) -> Generator[Step, None, Stream]:
    """Open a memory stream that was restored from an archive, or that was a replica with the known `ids`."""
    stream = _open(js, config, store, created_ns)
    _subscribe(js, stream, config.subjects)
    stream.evictions.trim_subjects(config.max_msgs_per_subject)
    yield from relearn_steps(stream, js.shared.clock.now_ns()) if ids is None else copied_steps(stream, *ids)
    _join(js, stream)
    if js.observer is not None:
        js.observer.stream_opened(stream, recovered=False)
    return stream


def _check_tier(js: JetStream, config: StreamConfig) -> None:
    """Raise ApiError if the account has limits by number of replicas, but none for the stream's number."""
    errcodes.NO_LIMITS.raise_if(
        bool(js.limits.tiers) and f"R{config.num_replicas or 1}" not in js.limits.tiers
    )


def _check_count(js: JetStream, config: StreamConfig) -> None:
    _check_tier(js, config)
    count = len(js.streams) + len(js.coming_streams) + len(js.elsewhere)
    if config.name not in js.streams and 0 < js.limits.max_streams <= count:
        raise errcodes.MAXIMUM_STREAMS_LIMIT.error()


def update(
    js: JetStream, config: StreamConfig, verdict: SubjectVerdict | None = None
) -> Generator[Step, None, Stream]:
    """Update a stream; return when the change is durable. `config` must have passed `check`.

    Raises:
        ApiError: the request is refused.
        StoreFailed: the configuration, or removals of messages, could not be written.
    """
    stream = js.stream(config.name)
    old = stream.config
    stream_rules.check_single_server(config)
    config = stream_rules.check_update(old, config.with_required_level())
    dead_letter_rules.check_stream(config, js.config_of, old)
    _check_room(js, config, max(max(config.max_bytes, 0) - max(old.max_bytes, 0), 0))
    _check_consumer_limits(js, stream, config)
    _check_overlap(js, config, verdict)
    with Reservation(js, config, old):
        if config.storage == FILE:
            yield from js.files.change(config, stream.created_ns, stream.store, js.shared.metadata)
            _check_running(js)
        yield from lower_limits(stream, config)
    _reserve(js, old, -1)
    _reserve(js, config, 1)
    _subscribe(js, stream, config.subjects)
    stream.configure(config)
    stream.evictions.lower(config)
    stream.special.drop_disabled()
    targets.direct_all(js, stream, old)
    _set_subjects(js, stream)
    if config.allow_msg_schedules and not old.allow_msg_schedules:
        yield from schedule_steps(stream)
    if config.retention == INTEREST and old.retention != INTEREST:
        yield from _remove_acknowledged(stream)
    if js.inflows or config.mirror or config.sources:
        from pyjs.jetstream.mirror import sourcing

        sourcing.changed(js, stream)
    stream.commit_now()
    if js.observer is not None:
        js.observer.stream_changed(stream, old)
    tell(js, stream.name, "modify")
    return stream


def _remove_acknowledged(stream: Stream) -> Generator[Step, None, None]:
    """Remove messages that no consumer needs any more; messages that never matched a consumer stay."""
    store = stream.store
    for consumer in list(stream.consumers.values()):
        delivered_to = consumer.cursor.next_seq if isinstance(consumer, Consumer) else store.last_seq + 1
        wanted = store.make_filter(consumer.filters)
        seq = yield from searches.next_match(store.catalogue, 0, wanted)
        while 0 < seq < delivered_to:
            stream.release(seq, min(seq + RELEASE_STEP, delivered_to) - 1, wanted)
            seq = yield from searches.next_match(store.catalogue, seq + RELEASE_STEP, wanted)
            if seq:
                yield None


def delete(js: JetStream, name: str, *, told: bool = True) -> Generator[Step, None, None]:
    """Delete a stream with its consumers and files; return when this is durable. If `told`, publish the advisory.

    Raises:
        ApiError: there is no such stream (10059).
        StoreFailed: the directory of the stream cannot be renamed, so nothing has changed, or the new name is not
            durable, so the next start may find the stream.
    """
    if name in js.offline:
        yield from js.files.remove_hidden(js.files.hide_offline(name), js.shared.metadata)
        js.held.let_go(name)
        if js.shared.spread is not None:
            js.shared.spread.gone(js.account.name, name)
        tell(js, name, "delete")
        return
    stream = js.stream(name)
    hidden = js.files.hide(name) if stream.config.storage == FILE else ""
    _close(js, stream, "deleted")
    stream.store.destroy()
    js.account.turn.jobs.extend(MemoryRelease(remains) for remains in stream.store.catalogue.take_remains())
    yield from _stop_consumers(stream)
    if hidden:
        yield from js.files.remove_hidden(hidden, js.shared.metadata)
    if told:
        tell(js, name, "delete")


def _stop_consumers(stream: Stream) -> Generator[Step, None, None]:
    """Stop and release the closed consumers of a deleted stream, some in each step."""
    # By name, since a list of the consumers would keep all of them in memory until the end.
    for number, name in enumerate(list(stream.consumers)):
        if number and number % STOP_STEP == 0:
            yield None
        consumer = stream.consumers[name]
        consumer.stop("deleted")
        stream.let_go(consumer)


def recover_steps(js: JetStream) -> Iterator[None]:
    """Open every stored stream, in steps. Log those that cannot be opened, and keep their files."""
    whole = yield from _open_found(js, js.files.recover_steps())
    for newer in js.offline.values():
        js.held.hold(newer.config)
    js.files.tails.forget({file_name(name) for name in js.streams})
    _take_up(js.inflows.values(), whole)
    for stream in js.streams.values():
        if stream.store.wants_upkeep and not stream.store.failed:
            try:
                stream.commit_now()  # recasting for a new key or compression begins after the first sync
            except StoreFailed:
                pass  # the store has logged the error, which publishers will get
    _retry_postponed(js)


def _open_found(js: JetStream, steps: Iterator[Found | None]) -> Generator[None, None, list[Stream]]:
    """Open the stored streams that `steps` yields; return those whose consumers could all be opened."""
    whole: list[Stream] = []
    for found in steps:
        if found is not None:
            yield from _recover_stream(js, *found, whole)
        yield
    return whole


def _take_up(inflows: Iterable[Inflow], whole: list[Stream]) -> None:
    """Start the mirrors and sources of recovered streams, and remove messages that no consumer needs any more."""
    for inflow in inflows:
        inflow.attach_all()
    for stream in whole:
        stream.sweep()


def _retry_postponed(js: JetStream) -> None:
    """Reserve the subjects and bytes of postponed streams, and try to open these streams after RETRY_NS."""

    def due() -> None:
        if js.account.jetstream is js:
            js.account.turn.go_on(_open_postponed(js))

    js.held.hold_all(js.files.postponed.values())
    if js.files.postponed:
        js.shared.timers.at(js.shared.clock.now_ns() + RETRY_NS, due)


def _open_postponed(js: JetStream) -> Iterator[None]:
    names = [config.name for config in js.files.postponed.values() if config is not None]
    try:
        whole = yield from _open_found(js, js.files.recover_postponed_steps())
        js.files.tails.forget({file_name(name) for name in js.streams})
    finally:
        again = [config.name for config in js.files.postponed.values() if config is not None]
        for name in names:
            if name not in again:
                js.held.let_go(name)  # it was opened, or it cannot be opened
        _retry_postponed(js)
    _take_up(js.inflows.values(), whole)


def _recover_stream(
    js: JetStream, config: StreamConfig, created_ns: int, store: StreamStore, whole: list[Stream]
) -> Iterator[None]:
    """Open a stored stream with its consumers; append it to `whole` if all of these could be opened.

    A damaged stream does not affect the others: the damage is logged, and the stream stays closed. A replicated
    stream waits for the metadata of the cluster, which states whether its replica still belongs to this server.
    """
    if config.num_replicas > 1 and js.shared.replicated is not None:
        js.parked[config.name] = Parked(config, created_ns, store)
        return
    try:
        _check_kept(js, config)
        js.held.let_go(config.name)
        stream = _open(js, config, store, created_ns)
        _subscribe(js, stream, config.subjects)
        stream.evictions.trim_subjects(config.max_msgs_per_subject)
        yield from _end_purge(js, stream)
        yield from rollup_steps(stream)
        yield from _relearn(js, stream)
        if (yield from consumers.recover_steps(js, stream)):
            whole.append(stream)
        _join(js, stream)
        if js.observer is not None:
            js.observer.stream_opened(stream, recovered=True)
    except NewerConsumer as newer:
        _close(js, js.streams[config.name], "shutdown")
        js.files.release(store)
        js.files.take_offline(Offline(config, newer.of_stream, newer.name, newer.reason))
        js.held.hold(config)
    except Exception as error:
        if config.name in js.streams:
            _close(js, js.streams[config.name], "shutdown")
        js.files.leave_stream(config, store, error)
        js.held.hold_all(js.files.postponed.values())


def _end_purge(js: JetStream, stream: Stream) -> Iterator[None]:
    """Complete a purge that a kill interrupted."""
    note = js.files.open_purge(stream.name)
    purge = note.begun() if stream.config.storage == FILE else None
    if purge is None:
        return
    subjects = (purge.subject.encode(),) if purge.subject else ()
    for _ in drop_steps(stream, stream.store.make_filter(subjects), purge.before_seq):
        yield
    note.end(js.shared.metadata)


def _check_kept(js: JetStream, config: StreamConfig) -> None:
    """Raise ApiError if no request could have created the mirror or sources of a stored configuration."""
    if config.mirror or config.sources:
        source_rules.check_kept(config, js.config_of)


def _relearn(js: JetStream, stream: Stream) -> Iterator[None]:
    """Restore the duplicate window of a recovered stream."""
    now_ns = js.shared.clock.now_ns()
    try:
        yield from relearn_steps(stream, now_ns, js.files.load_window(stream.name))
    except (*NONSENSE, PyjsError, OSError, MemoryError) as error:
        js.shared.log.warn(f"  Duplicate window of stream {stream.name!r} is read from messages: {error}")
        yield from relearn_steps(stream, now_ns)


def _join(js: JetStream, stream: Stream) -> None:
    """Start the mirror or sources of a new stream, and the mirrors and sources that copy it."""
    if js.inflows or stream.config.mirror or stream.config.sources:
        from pyjs.jetstream.mirror import sourcing

        sourcing.opened(js, stream)


def close_all(js: JetStream) -> None:
    """Close every stream and make its messages durable."""
    names = {file_name(name) for name in js.streams}
    tails = js.files.tails.room_for(len(names))
    for stream in list(js.streams.values()):
        _close(js, stream, "shutdown")
        _close_store(stream, tails)
        if stream.config.storage == FILE:
            js.files.save_window(stream.name, window_parts(stream, PART_IDS) if len(stream.dedupe) else None)
    js.files.tails.keep(tails or {}, names)
    js.held.let_all_go()
    for parked in js.parked.values():
        js.files.release(parked.store)
    js.parked.clear()
    if js.inflows:
        from pyjs.jetstream.mirror import sourcing

        sourcing.stop(js)
    js.files.close()


def _close_store(stream: Stream, tails: Tails | None) -> None:
    """Close the store of a stream when the server stops; the index file of its open segment may go into `tails`."""
    if tails is None or not isinstance(stream.store, FileStore):
        stream.store.close()
        return
    tail: list[Tail] = []
    stream.store.close(tail)
    if tail:
        tails[file_name(stream.name)] = tail[0]


def tell(js: JetStream, name: str, action: str) -> None:
    """Publish the advisory of a stream's creation, update or deletion."""
    shared = js.shared
    now_ns = shared.clock.wall_ns()
    advisories.publish_stream_action(js.account, shared.rng, name, action, now_ns, shared.options.domain)


def _new_store(
    js: JetStream, config: StreamConfig, created_ns: int, group: int = 0
) -> Generator[Step, None, StreamStore]:
    """Return the store of a new stream, or of a new replica in `group`, when its directory is durable."""
    store: StreamStore
    if config.storage == MEMORY:
        store = MemStore()
        store.replicate(group)
    else:
        store = yield from js.files.create(config, created_ns, js.shared.metadata, group)
        try:
            _check_running(js)
        except ApiError:
            js.files.release(store)
            raise
    if config.first_seq:
        store.set_first_seq(config.first_seq)
    return store


def _open(js: JetStream, config: StreamConfig, store: StreamStore, created_ns: int) -> Stream:
    usage, server_usage = js.usage[config.storage], js.shared.usage[config.storage]
    head = _ack_head(config.name, js.options.domain)
    expiry = Expiry(js.shared.timers)
    probe = StoreProbe(store, js.shared.timers) if isinstance(store, FileStore) else None
    stream = Stream(js.account, config, store, created_ns, usage, server_usage, head, expiry, probe)
    stream.special = SpecialPublishes(stream, js.shared, Expiry(js.shared.timers))
    if isinstance(store, FileStore):
        store.examiner.on_mistake = partial(_mistaken, stream)
    stream.sync_always = js.options.sync_always and config.storage == FILE and config.persist_mode != ASYNC
    _set_subjects(js, stream)
    js.streams[config.name] = stream
    _reserve(js, config, 1)
    return stream


def _mistaken(stream: Stream) -> None:
    """Request that the stream is reopened at the end of the turn, since an index file was wrong."""
    stream.account.turn.faulted.append((stream, StoreFailed(str(stream), "an index file was wrong")))


def _set_subjects(js: JetStream, stream: Stream) -> None:
    """Set the subject transform and the republishing of a stream as it is configured."""
    rng, moved, republished = js.shared.rng, stream.config.subject_transform, stream.config.republish
    stream.transform = None if moved is None else open_transform(moved.src, moved.dest, rng)
    stream.republisher = None if republished is None else Republisher(stream.name, republished, rng)


def _close(js: JetStream, stream: Stream, reason: str, fault: Exception | None = None) -> None:
    """Close a stream; `reason` is "deleted", "shutdown" or "fault". If `fault` is given, nothing is written."""
    deleted = reason == "deleted"
    if fault is not None:
        stream.special.drop(fault)
    stream.special.close()
    if js.observer is not None:
        js.observer.stream_closing(stream, deleted)
    if js.inflows and reason != "shutdown":
        from pyjs.jetstream.mirror import sourcing

        sourcing.closing(js, stream)
    for consumer in list(stream.consumers.values()):
        if deleted:
            consumer.close()  # `_stop_consumers` will stop it
        else:
            consumer.stop(reason)
    _subscribe(js, stream, ())
    if fault is None:
        stream.close()
    else:
        stream.abandon(fault)
    _untie(stream)
    _reserve(js, stream.config, -1)
    del js.streams[stream.name]


def _untie(stream: Stream) -> None:
    """Break the reference cycles of a closed stream with its consumers and its store."""
    stream.inbox.close()
    if isinstance(stream.store, FileStore):
        stream.store.examiner.on_mistake = stream.store.examiner.on_loss = None


def abandon(js: JetStream, stream: Stream, error: Exception) -> None:
    """Close a stream after a fault, without writing. A file stream can be opened again from its files."""
    _close(js, stream, "fault", error)
    if stream.config.storage == FILE:
        js.held.hold(stream.config)  # until it is reopened, by the next start at the latest
    if isinstance(stream.store, FileStore):
        stream.store.release()


def reopen_steps(js: JetStream, name: str) -> Iterator[None]:
    """Reopen a closed stream from its files, in steps."""
    whole = yield from _open_found(js, js.files.reopen_steps(name))
    _take_up([js.inflows[name]] if name in js.inflows else [], whole)


def _subscribe_steps(js: JetStream, stream: Stream) -> Iterator[None]:
    """Subscribe a new stream to its subjects, in steps; all its subjects are reserved from the first step on.

    Raises:
        ApiError: the stream was closed between two steps.
    """
    subjects = stream.config.subjects
    for subject in subjects:
        js.subjects.add(subject, stream.name)
    current = js.subscriptions.setdefault(stream.name, {}) if subjects else {}
    for at, subject in enumerate(subjects):
        if at and at % SUBSCRIBE_STEP == 0:
            yield
            if js.streams.get(stream.name) is not stream:
                for rest in subjects[at:]:
                    js.subjects.remove(rest, stream.name)
                raise errcodes.STREAM_CREATE.error(err="it was closed meanwhile")
        current[subject] = js.account.subscribe(subject.encode(), stream)


def _subscribe(js: JetStream, stream: Stream, subjects: tuple[str, ...]) -> None:
    """Replace the subscriptions of the stream with those for `subjects`."""
    current = js.subscriptions.setdefault(stream.name, {})
    wanted = set(subjects)
    for subject in [subject for subject in current if subject not in wanted]:
        js.account.unsubscribe(current.pop(subject))
        js.subjects.remove(subject, stream.name)
    for subject in subjects:
        if subject not in current:
            current[subject] = js.account.subscribe(subject.encode(), stream)
            js.subjects.add(subject, stream.name)
    if not current:
        del js.subscriptions[stream.name]


def _check_running(js: JetStream) -> None:
    """Raise ApiError if JetStream was disabled for the account in the meantime."""
    errcodes.NOT_ENABLED_FOR_ACCOUNT.raise_if(js.account.jetstream is not js)


def _reserve(js: JetStream, config: StreamConfig, sign: int) -> None:
    size = max(config.max_bytes, 0) * sign
    js.usage[config.storage].reserved += size
    js.shared.usage[config.storage].reserved += size


def _check_room(js: JetStream, config: StreamConfig, extra: int) -> None:
    """Raise ApiError if a stream that reserves `extra` bytes exceeds a limit of the account or the server."""
    errcodes.MAXIMUM_CONSUMERS_LIMIT.raise_if(0 < js.limits.max_consumers < config.max_consumers)
    need = extra if config.max_bytes > 0 else 1
    for usage in (js.usage[config.storage], js.shared.usage[config.storage]):
        if 0 <= usage.max < usage.reserved + need:
            full = {MEMORY: errcodes.MEMORY_RESOURCES_EXCEEDED, FILE: errcodes.STORAGE_RESOURCES_EXCEEDED}
            raise full[config.storage].error()


def _check_overlap(js: JetStream, config: StreamConfig, verdict: SubjectVerdict | None) -> None:
    if verdict is None or verdict.subjects != config.subjects or verdict.version != js.subjects.version:
        verdict = at_once(judge_subjects(js, config))
    errcodes.INSUFFICIENT_RESOURCES.raise_if(js.held.some_unknown and config.subjects)
    errcodes.STREAM_SUBJECT_OVERLAP.raise_if(verdict.taken)


def _check_consumer_limits(js: JetStream, stream: Stream, config: StreamConfig) -> None:
    new, old = config.consumer_limits, stream.config.consumer_limits
    if new == old:
        return
    longest, most = new.inactive_threshold_ns, new.max_ack_pending
    names = [
        name
        for name, consumer in stream.consumers.items()
        if 0 < longest < consumer.config.inactive_threshold_ns or 0 < most < consumer.config.max_ack_pending
    ]
    if names:
        text = f"change to limits violates consumers: {', '.join(names)}"
        raise errcodes.STREAM_UPDATE.error(err=text)


def _ack_head(name: str, domain: str) -> bytes:
    """Return the first bytes of every PubAck of a stream."""
    fields: dict[str, object] = {"stream": name, "domain": domain} if domain else {"stream": name}
    return orjson.dumps(fields)[:-1] + b',"seq":'
