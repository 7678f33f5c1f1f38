"""Mirrors and sources of an account's streams: their origins, their positions, and the reports about them.

Each stream that copies has an Inflow, with one copier (copier.pyx) for its mirror or for each of its sources. If an
origin is missing, the copier waits for it. An origin that was deleted and created again is recognized by its creation
time: a source then begins as configured, and a mirror continues after its own last message. The position of a mirror
is its last sequence; the positions of sources are stored (positions.py).

In a cluster, a consumer (origin_link.py) reads the origin, which may be on any server. With several workers, such a
consumer reads an origin that is in another worker. If the copying stream has several replicas, their leader copies;
it proposes the new positions together with the copies.

This module is imported with the first stream that copies. An origin with an API prefix is found only if this is the
prefix of the server's own domain, since a single server has no other domain.

Source: nats.docs "Source and Mirror Streams", ADR-10; probed on nats-server 2.15.1
(tests/conformance/scenarios/mirror, source).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.bounds import wrapped_ns
from pyjs.base.errors import NotNow, StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.stream import StreamConfig, StreamSource
from pyjs.jetstream.mirror import places, reports
from pyjs.jetstream.mirror.consumer_link import ConsumerLink
from pyjs.jetstream.mirror.copier import Copier, SourceSearch, last_sources
from pyjs.jetstream.mirror.durable import ConsumerFeed
from pyjs.jetstream.mirror.link_state import Place
from pyjs.jetstream.mirror.origin import Origin
from pyjs.jetstream.mirror.origin_consumers import OriginConsumers, delete_former, prefix_of
from pyjs.jetstream.mirror.origin_link import OriginLink
from pyjs.jetstream.mirror.places import earliest_ns, first_copied, first_mirrored, mirror_place, source_place
from pyjs.jetstream.mirror.positions import Positions
from pyjs.jetstream.names import identity
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.consumers import pack_positions
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.subjects.transform import open_transform

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.positions import Position
    from pyjs.jetstream.stream.stream import Stream

RETRY_NS = 1_000_000_000  # ns after which a refused message is tried again, unless the target changes earlier
SEARCHED_PER_STEP = 1024  # messages searched in one step for positions of sources: about a millisecond


# -- events of streams ---------------------------------------------------------------------------------------


def opened(js: JetStream, stream: Stream) -> None:
    """Start the mirror or sources of a stream that was opened, and connect the streams that copy it."""
    if stream.config.mirror or stream.config.sources:
        inflow = Inflow(js, stream)
        js.inflows[stream.name] = stream.inflow = inflow
        inflow.configure(stream.config)
    _connect(js, stream.name)


def changed(js: JetStream, stream: Stream) -> None:
    """Apply an updated configuration: start, change or stop copying."""
    inflow = js.inflows.get(stream.name)
    if inflow is None:
        opened(js, stream)
    elif stream.config.mirror or stream.config.sources:
        inflow.configure(stream.config)
    else:
        sources = inflow.sources
        stop_copying(js, stream)
        leave(js, stream.name, stream.created_ns, sources)


def closing(js: JetStream, stream: Stream) -> None:
    """Stop copying into and out of a stream that is being closed."""
    stop_copying(js, stream)
    for inflow in js.copied_by.get(stream.name, ()):
        inflow.disconnect(stream)


def stop(js: JetStream) -> None:
    """Stop all copying. The caller must close every stream next.

    If an interest or workqueue stream stayed open, it would remove messages that its mirrors have not copied yet.
    """
    for inflow in js.inflows.values():
        inflow.close()
    js.inflows.clear()


def stop_copying(js: JetStream, stream: Stream) -> None:
    """Stop copying into the stream."""
    inflow = js.inflows.pop(stream.name, None)
    if inflow is not None:
        inflow.close()


def leave(js: JetStream, name: str, created_ns: int, sources: Iterable[StreamSource]) -> None:
    """Delete the consumers that the stream `name`, created at `created_ns`, has at the origins of `sources`.

    Otherwise an interest or workqueue origin would store messages for these consumers until they expired.
    """
    for source in sources:
        key = places.key_of(source)
        if source.consumer is None and Origin(js, source).is_kept:
            consumers = OriginConsumers(js, source, prefix_of(name, created_ns, key))
            consumers.delete_all(unless=partial(_copies_again, js, name, created_ns, key))


def _copies_again(js: JetStream, name: str, created_ns: int, key: bytes) -> bool:
    """Return whether the stream `name` has the source `key` again, as far as this server knows."""
    stream, member = js.streams.get(name), js.shared.member
    configs = [] if stream is None or stream.created_ns != created_ns else [stream.config]
    found = None if member is None else member.machine.state.stream(js.account.name, name)
    if found is not None and found.created_ns == created_ns:
        configs.append(found.config)
    return any(places.key_of(source) == key for config in configs for source in sources_of(config))


def _connect(js: JetStream, name: str) -> None:
    for inflow in js.copied_by.get(name, ()):
        inflow.connect(name)


# -- the copies of one stream --------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True)
class SourceCopy:
    """One mirror or source, with its copier."""

    source: StreamSource
    key: bytes
    copier: Copier


class Inflow:
    """The copies into one stream: from the origin of its mirror, or from the origins of its sources."""

    def __init__(self, js: JetStream, stream: Stream) -> None:
        self._js = js
        self._stream = stream
        self._copies: dict[bytes, SourceCopy] = {}
        self._copy_of: dict[Copier, SourceCopy] = {}
        self._moved: list[Copier] = []  # copiers that made copies since the last commit
        self._blocked: list[Copier] = []  # copiers of which a message was refused since the last commit
        self._origins: set[str] = set()
        self._timer: Timer | None = None
        self._replica = stream.replica if isinstance(stream.replica, Replica) else None
        kept = stream.config.storage == FILE
        self._positions = Positions(
            (lambda: js.files.open_positions(stream.name)) if kept else None, js.shared.log
        )
        self._loaded = False
        self._recreated: set[bytes] = (
            set()
        )  # sources whose positions belong to another stream than their origin
        self._search: SourceSearch | None = None  # a search for positions; None: none is running
        # Number of times that copies were made or lost, and its value when nothing was in flight last.
        # Proposals of the former leader count as in flight too.
        self._copied, self._settled = 1, 0
        self.is_mirrored = False  # the stream is a mirror that has all or nearly all messages of its origin

    @property
    def sources(self) -> list[StreamSource]:
        """A list with the mirror, or with all sources."""
        return [copy.source for copy in self._copies.values()]

    def configure(self, config: StreamConfig) -> None:
        """Apply `config`; unchanged sources continue without interruption."""
        self.offering()
        sources = sources_of(config)
        wanted = {places.key_of(source): source for source in sources}
        for key in [key for key in self._copies if key not in wanted]:
            copy = self._copies.pop(key)
            del self._copy_of[copy.copier]
            copy.copier.detach()
            leave(self._js, self._stream.name, self._stream.created_ns, (copy.source,))
        added = [key for key in wanted if key not in self._copies]
        if added and not config.mirror:
            self._learn_positions(set(added))
        for key in added:
            copy = self._copies[key] = self._new_copy(key, wanted[key])
            self._copy_of[copy.copier] = copy
        self._copies = {key: self._copies[key] for key in wanted}
        self._register({source.name for source in sources})
        for key in added:
            self._copies[key].copier.wake(0)

    def _register(self, origins: set[str]) -> None:
        """Register this stream in the account as a copy of the streams `origins`."""
        copied_by = self._js.copied_by
        for name in self._origins - origins:
            copied_by[name].discard(self)
            if not copied_by[name]:
                del copied_by[name]
        for name in origins - self._origins:
            copied_by.setdefault(name, set()).add(self)
        self._origins = origins

    def _new_copy(self, key: bytes, source: StreamSource) -> SourceCopy:
        rng = self._js.shared.rng
        transforms = [open_transform(each.src, each.dest, rng) for each in source.subject_transforms]
        mirrors = self._stream.config.mirror is not None
        name = f"{self._stream.name}\0{key.decode('utf-8', 'surrogateescape')}"
        copier = Copier(self, self._stream, name, source.filters, transforms, mirrors)
        if source.consumer is not None:
            link = ConsumerLink(self._js, source, copier, self)
            ConsumerFeed(copier, link, source.consumer.name.encode())
        elif self._is_remote(source):
            prefix = prefix_of(self._stream.name, self._stream.created_ns, key)
            ConsumerFeed(
                copier, OriginLink(self._js, source, copier, self, Origin(self._js, source), prefix), b""
            )
        origin, _, rest = key.partition(b" ")
        copier.describe(origin + b" ", b" " + rest + b" ")
        copier.stored = self._positions.known.get(key, (0, b""))[0]
        return SourceCopy(source, key, copier)

    def _is_remote(self, source: StreamSource) -> bool:
        """Return whether a consumer reads the origin, because it may be on another server or in another worker."""
        is_elsewhere = self._js.shared.member is not None or source.name in self._js.elsewhere
        return is_elsewhere and self._is_here(source)

    def origin_moved(self, name: str) -> None:
        """Read an origin from its new place, since it was moved to or from another worker."""
        for key, copy in list(self._copies.items()):
            feed = copy.copier.feed
            if copy.source.name != name or copy.source.consumer is not None:
                continue
            if (feed is not None) != self._is_remote(copy.source):
                del self._copy_of[copy.copier]
                copy.copier.detach()
                new = self._copies[key] = self._new_copy(key, copy.source)
                self._copy_of[new.copier] = new
                new.copier.wake(0)
            elif feed is not None:
                feed.link.origin_opened()

    def _learn_positions(self, keys: set[bytes]) -> None:
        """Set the positions of sources from stored positions, and from the headers of newer messages.

        In a replicated stream, only begin the search of headers, see `_search_steps`.
        """
        positions, store = self._positions, self._stream.store
        if not self._loaded:
            self._loaded = True
            if not positions.load() or positions.true_at > store.last_seq:
                positions.true_at = 0
        self._know_committed()
        if self._replica is None:
            positions.known.update(last_sources(store, positions.true_at, keys))
        elif missing := keys - self._replica.consumers.positions.keys() - positions.known.keys():
            if self._search is not None:
                missing |= self._search.wanted
            self._search = SourceSearch(store, positions.true_at, missing)
        positions.true_at = store.last_seq

    # -- origins on any server: link_state.Target ------------------------------------------------------------

    def settled_steps(self) -> Generator[Step, None, None]:
        """Wait until every copy is either stored or lost.

        Raises:
            ApiError, StoreFailed: the stream cannot store copies any more.
        """
        if self._replica is None:
            self._stream.commit_now()
            return
        while self._settled < self._copied:  # without proposals, there is nothing to wait for
            copied = self._copied
            yield from self._replica.operate(operation("positions", pack_positions({})))
            self._settled = copied
        yield from self._search_steps()
        self._know_committed()

    def _know_committed(self) -> None:
        """Use the committed positions, except of sources whose origin was deleted and created again."""
        if self._replica is not None:
            committed = self._replica.consumers.positions
            self._positions.known.update(
                {key: place for key, place in committed.items() if key not in self._recreated}
            )

    def _search_steps(self) -> Generator[Step, None, None]:
        """Search the headers of messages for positions that are neither committed nor in a file, in steps.

        Raises:
            StoreFailed: a message cannot be read now.
        """
        while self._search is not None and self._copies:
            try:
                has_more = self._search.go_on(max(SEARCHED_PER_STEP // len(self._copies), 1))
            except NotNow as error:  # the position may be in that message; an older one would copy again
                raise StoreFailed(str(self._stream), str(error)) from error
            if has_more:
                yield None
                continue
            found, self._search = self._search.found, None
            for key, place in found.items():
                if key in self._copies:
                    self._positions.known[key] = place
                    self._copies[key].copier.stored = place[0]

    def place_of(self, copier: Copier) -> Place:
        """Return the position at which a copier continues."""
        copy, store = self._copy_of[copier], self._stream.store
        source = copy.source
        origin = Origin(self._js, source)
        if copier.mirrors:
            return mirror_place(store, source, origin.created_ns if origin.is_queue else None)
        position = self._positions.known.get(copy.key, (0, b""))
        if position != (0, b""):
            return source_place(store, source, position, origin.is_queue)
        if source.opt_start_seq:
            return Place(source.opt_start_seq, None, b"")
        return Place(0, earliest_ns(store, source, copy.key in self._recreated), b"")

    def recreated(self, copier: Copier) -> None:
        """Forget the position of a source, since its origin was deleted and created again."""
        copy = self._copy_of.get(copier)
        if copy is not None:
            self._positions.known[copy.key] = (0, b"")
            self._recreated.add(copy.key)
            copier.stored = 0

    def begin_steps(self, copier: Copier, delivered: int, ident: bytes) -> Generator[Step, None, None]:
        """Open a copier for the messages after `delivered` in the origin with the identity `ident`.

        Raises:
            ApiError, StoreFailed: the copier cannot be opened now.
        """
        store = self._stream.store
        if copier.mirrors and delivered > store.last_seq:
            if self._replica is not None:
                yield from self._replica.operate(operations.skip(delivered))
            else:
                store.skip_seqs_to(delivered)
                self._stream.note_change()
        if not copier.mirrors:
            yield from self._place_steps(copier, delivered, ident)
        copy = self._copy_of.get(copier)
        if copy is None or copier.feed is None:
            return  # the copier was closed in the meantime
        seq = store.last_seq if copier.mirrors else self._positions.known[copy.key][0]
        copier.feed.open(seq, b" " + ident if ident and not copier.mirrors else b"")

    def _place_steps(self, copier: Copier, delivered: int, ident: bytes) -> Generator[Step, None, None]:
        """Set the position at which a source begins; in a replicated stream, wait until the position is committed."""
        copy = self._copy_of.get(copier)
        if copy is None:
            return
        seq, known = self._positions.known.get(copy.key, (0, b""))
        if ident and known not in (b"", ident):
            seq = copier.stored = 0  # the sequence counts in another stream
        place = self._positions.known[copy.key] = max(seq, delivered), ident or known
        if self._replica is not None and self._replica.consumers.positions.get(copy.key) != place:
            yield from self._replica.operate(operation("positions", pack_positions({copy.key: place})))
            self._recreated.discard(copy.key)

    # -- origins -------------------------------------------------------------------------------------------

    def connect(self, name: str) -> None:
        """Attach the copiers whose origin is the stream `name`, which was opened just now."""
        for copy in self._copies.values():
            if copy.source.name == name and copy.copier.feed is not None:
                copy.copier.feed.link.origin_opened()
            elif copy.source.name == name and copy.copier.origin is None:
                copy.copier.wake(0)

    def attach_all(self) -> None:
        """Attach every copier to its origin now, so that the origin keeps the messages that are not copied yet."""
        for copy in self._copies.values():
            if copy.copier.origin is None and copy.source.consumer is None and copy.copier.feed is None:
                self.find_origin(copy.copier)

    def find_origin(self, copier: Copier) -> bool:
        """Attach a copier to its origin; return False if the origin is not open on this server."""
        copy = self._copy_of.get(copier)
        if copy is None:
            return False  # it was closed while it was queued
        origin = self._js.streams.get(copy.source.name) if self._is_here(copy.source) else None
        if origin is not None:
            self._attach(copy, origin)
        elif copy.source.external is None:
            copier.error = errcodes.STREAM_NOT_FOUND.error()
        return origin is not None

    def disconnect(self, origin: Stream) -> None:
        """Detach the copiers that read a stream which is being closed."""
        for copy in self._copies.values():
            if copy.copier.feed is not None:
                if copy.source.name == origin.name:
                    copy.copier.feed.link.origin_closed()
            elif copy.copier.origin is origin:
                copy.copier.detach()
                copy.copier.wake(0)

    def _is_here(self, source: StreamSource) -> bool:
        domain = self._js.options.domain
        return source.external is None or (bool(domain) and source.external.api == f"$JS.{domain}.API")

    def _attach(self, copy: SourceCopy, origin: Stream) -> None:
        ident = identity(origin.created_ns)
        if self._stream.config.mirror is not None:
            seq = self._mirror_position(copy.source, origin)
            begin = first_mirrored(self._stream.store, copy.source, origin.created_ns)
            copy.copier.attach(origin, seq, b"", begin)
            self._take_over(copy, origin, begin or seq + 1)
            return
        seq, known = self._positions.known.get(copy.key, (0, b""))
        recreated = known not in (b"", ident)
        begin = first_copied(copy.source)
        if seq == 0 or recreated:
            begin = copy.copier.stored = 0
            seq = self._first_position(copy.source, origin, recreated)
        self._positions.known[copy.key] = (seq, ident)
        copy.copier.attach(origin, seq, b" " + ident, begin)
        self._take_over(copy, origin, begin or seq + 1)

    def _take_over(self, copy: SourceCopy, origin: Stream, begin: int) -> None:
        """Delete the consumers through which another worker read the origin.

        The origin may then remove the copied messages from `begin` on.
        """

        def deleted() -> None:
            if copy.copier.origin is origin:  # messages without a safe copy remain
                origin.release(begin, origin.store.last_seq, origin.store.make_filter(copy.source.filters))

        prefix = prefix_of(self._stream.name, self._stream.created_ns, copy.key)
        delete_former(self._js, copy.source, prefix, origin, deleted)

    def _mirror_position(self, mirror: StreamSource, origin: Stream) -> int:
        """Return the last sequence of the mirror, after which it continues; a new mirror first skips to its start."""
        store = self._stream.store
        if store.msgs == 0 and store.first_seq == 0:
            start = max(mirror.opt_start_seq, origin.store.first_seq)
            if mirror.opt_start_time_ns is not None and mirror.opt_start_seq == 0:
                start = origin.store.catalogue.seq_at(wrapped_ns(mirror.opt_start_time_ns))
            store.skip_seqs_to(max(start, 1) - 1)
        return store.last_seq

    def _first_position(self, source: StreamSource, origin: Stream, recreated: bool) -> int:
        """Return the sequence after which a source without a position begins."""
        if source.opt_start_seq:
            return source.opt_start_seq - 1
        start_ns = earliest_ns(self._stream.store, source, recreated)
        return 0 if start_ns is None else origin.store.catalogue.seq_at(start_ns) - 1

    # -- calls from copiers and the stream -----------------------------------------------------------------------

    def has_copied(self, copier: Copier) -> None:
        """Record that `copier` has made copies since the last commit."""
        self._copied += 1
        self._moved.append(copier)

    def was_blocked(self, copier: Copier) -> None:
        """Try a refused message again with the next commit, or after RETRY_NS if nothing happens in the stream.

        A mirror answers no direct gets of its origin until it has caught up.
        """
        self._blocked.append(copier)
        self._offer_direct_gets(False)
        if self._timer is None:
            shared = self._js.shared
            self._timer = shared.timers.at(shared.clock.now_ns() + RETRY_NS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._wake_blocked()

    def _wake_blocked(self) -> None:
        blocked, self._blocked = self._blocked, []
        for copier in blocked:
            copier.wake(0)

    def is_current(self, copier: Copier) -> None:
        """Make a mirror that has caught up answer direct gets of its origin."""
        self._offer_direct_gets(True)

    def _offer_direct_gets(self, offered: bool) -> None:
        if self.is_mirrored != offered:
            self.is_mirrored = offered
            if self._stream.config.mirror_direct and self._js.observer is not None:
                self._js.observer.stream_changed(self._stream, self._stream.config)

    def offering(self) -> None:
        """Add the new positions of the sources to this turn's payload, which has the copied messages."""
        replica = self._replica
        if replica is None or not replica.leads or not self._moved:
            return
        copiers, self._moved = self._moved, []
        done, moved = [], {}
        for copier in copiers:
            copy = self._copy_of.get(copier)
            if copy is None:
                continue
            generation, seq = copier.proposed
            done.append((copier, generation, seq))
            if not copier.mirrors:
                moved[copy.key] = seq, self._positions.known[copy.key][1]
                self._recreated.discard(copy.key)
        if moved or not replica.collects:
            replica.add_changes("positions", b"", pack_positions(moved))
        replica.when_applied(partial(self._applied, done))

    def _applied(self, done: list[tuple[Copier, int, int]], _: None) -> None:
        """Record that copies are stored on a majority of the replicas."""
        for copier, generation, seq in done:
            copy = self._copy_of.get(copier)
            copier.applied(generation, seq)
            if copy is not None and not copier.mirrors:
                known, ident = self._positions.known[copy.key]
                self._positions.known[copy.key] = max(known, seq), ident

    def committed(self) -> None:
        """Try refused messages again. Unless the stream is replicated, also store the positions of its sources."""
        self._wake_blocked()
        if self._replica is not None:
            return
        copiers, self._moved = self._moved, []
        moved: dict[bytes, Position] = {}
        for copier in copiers:
            copy = self._copy_of.get(copier)
            if copier.committed() and not copier.mirrors and copy is not None:
                moved[copy.key] = (copier.written, self._positions.known[copy.key][1])
        if moved:
            self._positions.save(self._stream.store.last_seq, moved)

    def lost(self) -> None:
        """Copy again the messages that could not be stored for lack of space, or whose proposal was lost."""
        self._copied += 1
        if self._replica is not None:
            self._moved = []
            for copier in self._copy_of:
                copier.drop()
            return
        if not self._stream.config.mirror:
            self._learn_positions(set(self._copies))  # an earlier write of the turn may have stored some
        for copy in self._copies.values():
            copy.copier.lost(self._positions.known.get(copy.key, (0, b""))[0])
            self.was_blocked(copy.copier)
        self._moved = []

    def close(self) -> None:
        """Detach all copiers, and stop copying into the stream."""
        self.offering()
        self._stream.inflow = None
        for copy in self._copies.values():
            copy.copier.detach()
        self._copies, self._copy_of = {}, {}
        self._moved, self._blocked = [], []
        self._register(set())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- reports -------------------------------------------------------------------------------------------

    def count_steps(self) -> Generator[None, None, None]:
        """Count the lags in steps, for `report`."""
        return reports.count_steps([copy.copier for copy in self._copies.values()])

    def report(self, *, lag: bool = True) -> list[dict[str, Any]]:
        """Return the reports about the mirror, or about each source.

        With `lag`, this may take long unless `count_steps` has just ended.
        """
        now_ns = self._js.shared.clock.now_ns()
        return [reports.shown(copy, now_ns, lag=lag) for copy in self._copies.values()]


# -- names -------------------------------------------------------------------------------------------------


def sources_of(config: StreamConfig) -> tuple[StreamSource, ...]:
    """Return the mirror of a stream, or all its sources."""
    return (config.mirror,) if config.mirror else config.sources
