"""Lets a replica that is behind or has lost messages copy the missing messages from another replica.

Its stream is closed during the copy. Committed entries are held, up to HELD_MAX bytes. Beyond that they are dropped,
and the copy continues until it contains them. Then the stream is opened as at a start, and the held entries are
applied.

A replica may have messages that the group has lost (agreement.py), and does not know this after a restart. So it
first compares its last messages with those of another replica (comparing.py). If they differ, it drops all its
messages and copies everything. It does so only if the other replica is undamaged, since a damaged one may still need
messages from here. Until then, other replicas may read the messages that are the same in both (`common`).
A replica that has lost messages (`heals`) copies in the same way, and also fills the gaps between its messages
(restoring.py). Its store is dropped only when an undamaged replica has everything, since some of its messages may be
damaged elsewhere. If it is elected and no other replica can serve for GIVE_UP_NS, it leads without the lost messages,
as a stream with one replica would continue without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.declared import from_meta
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage import streams
from pyjs.jetstream.manage.parked import KnownIds, Parked
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.agreement import Agreement
from pyjs.jetstream.replication.comparing import common_steps
from pyjs.jetstream.replication.copy_batch import WHOLE, BadCopy, Kind, State
from pyjs.jetstream.replication.copying import (
    PAUSE_NS,
    RATE,
    Answer,
    OtherStore,
    end_steps,
    is_there,
    lacking_ids_steps,
    lacking_steps,
    lacks_lost,
    put,
)
from pyjs.jetstream.replication.restoring import (
    PutBack,
    cleared_steps,
    drop_copy,
    end_copy,
    note_copy_steps,
    put_back_steps,
    work_steps,
)
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StreamStore

    Steps: TypeAlias = Generator[Step, None, None]

HELD_MAX = 32 << 20  # maximum bytes of held entries
RETRY_NS = 5 * NS_PER_S  # pause after a failure of the disk
GIVE_UP_NS = 10 * NS_PER_S
# time for the others to copy their lost messages from a store before it is dropped
UNREPAIRED_NS = 60 * NS_PER_S
# copies that do not match, after which the store of a replica with lost messages may be dropped
OTHERS_MAX = 2
ITEM_SIZE_MIN = 12  # minimum bytes of a message in an entry
ENTRY_COST = 256  # bytes of memory of an entry, in addition to its payload


class Behind(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    js: JetStream
    assignment: Assignment
    stream: Stream
    is_elected: bool
    whole: Answer
    agreement: Agreement

    @property
    def group(self) -> int:
        """The number of the group."""

    def name_of(self, node: int) -> str:
        """Return the name of a server."""

    def has_entries_after(self, index: int) -> bool:
        """Return whether the log has every entry after `index`."""

    def sync(self) -> None:
        """Begin to sync the store."""

    def lead_damaged(self) -> None:
        """Open the stream without the lost messages, and lead if this replica is elected."""

    def sources(self) -> Sequence[int]:
        """Return the nodes from which this replica can copy, in order of preference."""

    def hand_over(self, node: int) -> None:
        """Transfer the leadership to the replica on another node."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""

    def caught_up(self, stream: Stream, consumers: bytes) -> None:
        """Continue with the copied stream and its consumers; apply the held entries."""

    def give_up(self, last_seq: int) -> None:
        """Make all replicas of a memory stream continue after sequence `last_seq` without any messages."""


class LostMessages(PyjsError):
    """Raised if the store has messages that the group has lost."""


class NoSource(PyjsError):
    """Raised if no other replica can serve, so the group waits for this replica."""


class CatchUp:
    """The process by which one replica that is behind copies the messages that it lacks."""

    def __init__(
        self,
        machine: Behind,
        index: int,
        last_seq: int,
        *,
        heals: bool = False,
        again: bool = False,
    ) -> None:
        self._machine = machine
        self._heals = heals  # the replica has lost messages
        self._again = again  # this replica was healed just now
        self._lacks_entries = False  # the log does not have all entries after those of the store
        self._waits_ns = -1  # since when the group waits for this replica; -1: it does not
        self._put_back = 0  # how often lost messages were put back
        self.store: StreamStore | None = None  # other replicas may read messages from it
        self._js = machine.js
        self._name = machine.assignment.name
        self.answer = Answer(machine.stream.turn, machine.js.shared.timers, 3)
        self.last = index  # index of the last received entry
        self._let_go = index  # the copy must contain the effects of entries up to this index
        self.held: list[tuple[int, int, int, bytes]] = []  # index, term, time, payload
        self._held_size = 0
        self._asked = 0
        self._behind: set[int] = set()  # nodes that answered "behind" since this one was elected
        self._last_seq = last_seq  # upper bound of the sequences that the group has used
        self.is_dropped = False  # the store was removed, and no new one was created yet
        # while the replica is unsure: up to this sequence, its messages are those of the group
        self.common = 0
        self._needed: dict[
            int, bool
        ] = {}  # by node: whether its replica has lost a message that this one has
        self._others = 0  # number of copies that did not match, if this replica has lost messages
        self._steps = self._run()

    def begin(self) -> None:
        """Start the copy."""
        self._machine.stream.turn.go_on(self._steps)

    def cancel(self) -> None:
        """Stop the copy, because the replica is closed or removed."""
        self._steps.close()

    def hold(self, index: int, term: int, time_ns: int, payload: bytes) -> None:
        """Hold an entry until the copy is complete; drop all held entries if together they exceed HELD_MAX."""
        self.last = index
        self._last_seq += len(payload) // ITEM_SIZE_MIN
        self._held_size += len(payload) + ENTRY_COST
        if self._held_size > HELD_MAX:
            self.let_go(index)
        else:
            self.held.append((index, term, time_ns, payload))

    def let_go(self, index: int) -> None:
        """Drop the held entries; the copy must contain every entry up to `index`."""
        self.last = max(self.last, index)
        self._let_go = self.last
        self.held.clear()
        self._held_size = 0

    def installed(self, index: int, last_seq: int) -> None:
        """Drop the held entries, since a snapshot or a note has replaced the entries up to `index`.

        `last_seq` is the last sequence used up to that entry.
        """
        self.let_go(index)
        self._last_seq = max(self._last_seq, last_seq)

    def elected(self) -> None:
        """Handle the election of this replica as leader."""
        self._behind.clear()

    @property
    def is_hopeless(self) -> bool:
        """Whether the stream is in memory, and all other replicas have answered that they are behind too."""
        assignment = self._machine.assignment
        return assignment.config.storage == MEMORY and len(self._behind) + 1 >= len(assignment.nodes)

    # -- steps -------------------------------------------------------------------------------------------------

    def _run(self) -> Steps:
        log, stream = self._js.shared.log, self._machine.stream
        trouble = "has lost messages" if self._heals else "is behind the others"
        log.warn(f"The replica of {stream} {trouble} and copies what it lacks")
        streams.abandon(self._js, stream, StoreFailed(str(stream), "it is behind"))
        self._js.held.let_go(self._name)
        if self._again:
            yield from self.answer.pause(RETRY_NS)
        while True:
            try:
                opened, consumers = yield from self._attempt()
                break
            except LostMessages as error:
                log.error(
                    f"The replica of {stream} has messages that are lost on the others, and drops all: {error}"
                )
                continue
            except PutBack:
                self._put_back += 1  # each further round waits longer
                yield from self.answer.pause(min(self._put_back, 50) * PAUSE_NS)
                continue
            except NoSource:
                if not self._lacks_entries:
                    self._machine.lead_damaged()
                    return
                self._waits_ns = -1  # another replica may have the missing entries
                for node in self._machine.sources()[:1]:
                    self._machine.hand_over(node)
            except (PyjsError, *NONSENSE, OSError, MemoryError) as error:
                log.error(f"The replica of {stream} cannot copy what it lacks, it tries again: {error}")
            yield from self.answer.pause(RETRY_NS)
        self._machine.caught_up(opened, consumers)
        log.info(f"The replica of {stream} has caught up")

    def _attempt(self) -> Generator[Step, None, tuple[Stream, bytes]]:
        """Copy the missing messages; return the open stream, and a dump of its consumers."""
        found = yield from self._opened()
        try:
            self.store = found.store
            yield from self._check_steps(found.store)
            if self._heals:
                yield from self._healing_steps(found.store, begins=True)
            state = yield from self._copy_steps(found.store)
            yield from self._healing_steps(found.store, begins=False)
            config = from_meta(StreamConfig, state.config)
            if config != found.config and config.storage == FILE:
                files, metadata = self._js.files, self._js.shared.metadata
                yield from files.change(config, found.created_ns, found.store, metadata)
            found = found._replace(config=config)
        except (OtherStore, LostMessages) as error:
            self._close(found)
            if isinstance(error, LostMessages) or (yield from self._is_useless()):
                yield from self._drop(found)
            raise
        except NoSource:
            self._close(found)
            yield from self._undo_steps(found.store)
            raise
        except BaseException:
            self._close(found)
            raise
        ids: KnownIds | None = None
        if config.storage == FILE:
            self._close(found)
            found = yield from self._opened()
        else:
            ids = KnownIds(state.ids, state.ids_count, state.last_id)
        stream = yield from streams.open_replica(self._js, found, ids=ids)
        return stream, state.consumers

    def _healing_steps(self, store: StreamStore, *, begins: bool) -> Steps:
        """Mark a file store as incomplete if `begins` is true; otherwise remove this mark, after the copy.

        A store in memory has no mark.
        """
        if not isinstance(store, FileStore):
            return
        turn = self._machine.stream.turn
        if begins:
            yield from work_steps(turn, store.begin_healing)
        elif store.healing:
            yield from cleared_steps(turn, store)
            yield from work_steps(turn, lambda: end_copy(store))
            yield from work_steps(turn, store.end_healing)

    def _undo_steps(self, store: StreamStore) -> Steps:
        """Remove an unfinished copy if the log has all later entries, since these entries add the same messages."""
        self._lacks_entries = not self._machine.has_entries_after(store.applied_index)
        if isinstance(store, FileStore) and not self._lacks_entries:
            yield from work_steps(self._machine.stream.turn, lambda: drop_copy(store))

    def _opened(self) -> Generator[Step, None, Parked]:
        """Return the stored replica, or a new one if it has no files.

        Raises:
            StoreFailed: the files cannot be read.
        """
        js, assignment = self._js, self._machine.assignment
        if assignment.config.storage == FILE and not self.is_dropped:
            for found in js.files.reopen_steps(self._name):
                if found is not None:
                    return Parked(*found)
                yield None
            raise StoreFailed(js.files.directory_of(self._name), "it cannot be read")
        config, created_ns, group = assignment.config, assignment.created_ns, assignment.group
        found = yield from streams.new_replica(js, config, created_ns, group)
        if self.is_dropped:  # term 0 marks the copy as incomplete: no log has such an entry
            found.store.begin_copied_entry()
            found.store.end_copied_entry(self._let_go, 0, 1, 0, b"")
        self.is_dropped = False
        return found

    def _close(self, found: Parked) -> None:
        self.store = None
        if found.config.storage == FILE:
            self._js.files.release(found.store)

    def _drop(self, found: Parked) -> Steps:
        """Remove the files of a store that cannot become a correct copy."""
        if found.config.storage == FILE:
            files, self.is_dropped = self._js.files, True
            yield from files.remove_hidden(files.hide(self._name), self._js.shared.metadata)

    def _is_useless(self) -> Generator[Step, None, bool]:
        """Return whether a store that does not match may be dropped.

        The store of a replica with lost messages may be dropped only if another replica is undamaged.
        """
        if not self._heals:
            return True
        self._others += 1
        return self._others >= OTHERS_MAX and (yield from self._ask(WHOLE)) is not None

    def _check_steps(self, store: StreamStore) -> Steps:
        """Compare a store with those of other replicas until the group is known to have all messages of this store.

        Raises:
            LostMessages: another replica has different messages, and needs none from this store.
            NoSource: no other replica can serve.
        """
        since_ns, turn = -1, self._machine.stream.turn
        while isinstance(store, FileStore) and store.last_seq:
            sources = self._machine.sources()
            found = yield from self._ask(store.last_seq)
            if found is None:
                self._check_waiting()
            else:
                self._waits_ns, node = -1, sources[self._asked % len(sources)]
                since_ns = turn.now if since_ns < 0 else since_ns
                is_late = turn.now - since_ns > UNREPAIRED_NS
                if (yield from self._is_common(store, node, is_late=is_late)):
                    return
                self._asked += 1  # ask the next replica, which may be undamaged
            yield from self.answer.pause(PAUSE_NS)

    def _is_common(self, store: FileStore, node: int, *, is_late: bool) -> Generator[Step, None, bool]:
        """Compare a store with that on `node`; return whether the group is known to have all messages of `store`.

        Raises:
            LostMessages: the group does not have all messages of the store, and the store may be dropped.
        """
        agreement = self._machine.agreement
        common = yield from common_steps(self._machine, store, node, self.answer)
        self.common = max(self.common, common.seq)
        agreement.is_unsure |= common.differs
        end = yield from self._end_before(store)
        is_short = end is not None and end.last_seq < store.last_seq
        if not agreement.is_unsure or agreement.is_incomplete:
            # if short, this replica may have copied from one that had applied more entries
            return not is_short
        if end is not None and end.index < self._let_go and not common.differs:
            return False
        if common.is_everything and not is_short:
            return True
        lost = copy_batch.sequences(b"" if end is None else end.lost)
        self._needed[node] = any(is_there(store, seq) for seq in lost if seq <= self.common)
        if any(self._needed.values()) or not (is_late or (yield from self._is_whole(node))):
            return False
        if common.differs or is_short:
            raise LostMessages(f"only the messages up to {common.seq} are the same there")
        return True

    def _end_before(self, store: StreamStore) -> Generator[Step, None, State | None]:
        """Return the state of another replica, or None if it does not answer.

        Also return None if that replica has messages after the last one of the store.
        """
        have = store.last_seq
        found = yield from self._ask(have)
        if found is not None and found[0] is Kind.PART and found[1] == have:  # the other store ends earlier
            have = self.common
            while found is not None and found[0] is Kind.PART and have < store.last_seq:
                found = yield from self._ask(have)
                have = have if found is None else found[1]
        return None if found is None or found[0] is not Kind.END else copy_batch.end_of(found[2])[0]

    def _is_whole(self, node: int) -> Generator[Step, None, bool]:
        """Return whether the replica on a node answers that it is undamaged."""
        group = self._machine.assignment.group
        found = yield from self.answer.steps(
            lambda number: self._machine.send(node, copy_batch.ask(group, number, WHOLE))
        )
        return found is not None and found[0] is Kind.PART

    def _copy_steps(self, store: StreamStore) -> Generator[Step, None, State]:
        """Copy until the store contains the effect of every dropped entry; return the other replica's state.

        Raises:
            NoSource: no other replica can serve.
            PutBack: lost messages were put back, so the store must be opened again.
            OtherStore: the copy does not match the state of the other replica.
            StoreFailed: the store cannot be written.
        """
        store.keep_headers()
        have = store.last_seq
        while True:
            found = yield from self._ask(have)
            if self._machine.is_elected and self.is_hopeless:
                self._machine.give_up(self._last_seq)
                self._behind.clear()
            if found is None:
                self._check_waiting()
                yield from self.answer.pause(PAUSE_NS)
                continue
            kind, upto, data = found
            state, deleted = None, copy_batch.sequences(b"")
            if kind is Kind.END:
                state, data = copy_batch.end_of(data)
                deleted = copy_batch.sequences(state.deleted)
            messages = [each for each in copy_batch.records_of(data) if each.seq > store.last_seq]
            if messages and self._heals and isinstance(store, FileStore):
                yield from note_copy_steps(self._machine.stream.turn, store)
            for message in messages:
                put(store, message)
            store.flush()
            have = max(have, upto)
            if state is not None and self._heals and lacks_lost(store, state):
                # Neither replica has these messages, but they were not removed: wait for an undamaged replica.
                self._asked += 1
                self._check_waiting()
                yield from self.answer.pause(PAUSE_NS)
                continue
            self._waits_ns = -1
            if state is not None and state.index >= self._let_go:
                if self._heals and isinstance(store, FileStore):
                    missing = yield from lacking_steps(store, state, deleted)
                    ids, here = yield from lacking_ids_steps(store, state)
                    if missing or ids or store.damaged_numbers(0):
                        yield from put_back_steps(self._machine, store, missing, ids, here, self.answer)
                yield from end_steps(store, state, deleted, erases=self._heals)
                return state
            yield from self.answer.pause(len(data) * NS_PER_S // RATE)

    def _check_waiting(self) -> None:
        """Raise NoSource if the group has waited for this replica for longer than GIVE_UP_NS."""
        now_ns = self._machine.stream.turn.now
        if not (self._heals and self._machine.is_elected):
            self._waits_ns = -1
        elif self._waits_ns < 0:
            self._waits_ns = now_ns
        elif now_ns - self._waits_ns > GIVE_UP_NS:
            raise NoSource(f"no other replica can serve {self._machine.stream}")

    def _ask(self, have: int) -> Generator[Step, None, tuple[Kind, int, bytes] | None]:
        """Ask another replica for the messages after `have`.

        Return its answer as kind, last covered sequence and data, or None if there is no usable answer.
        """
        nodes = self._machine.sources()
        if not nodes:
            return None
        node, group = nodes[self._asked % len(nodes)], self._machine.assignment.group
        found = yield from self.answer.steps(
            lambda number: self._machine.send(node, copy_batch.ask(group, number, have))
        )
        if found is None or found[0] not in (Kind.PART, Kind.END):
            self._asked += 1
            if found is not None and found[0] is Kind.BEHIND:
                self._behind.add(node)
            return None
        if self._machine.is_elected:
            self._machine.hand_over(node)
        try:
            for _ in copy_batch.records_of(copy_batch.records_in(*found)):
                pass
        except BadCopy as error:
            self._js.shared.log.error(f"A copy from node {node} is refused: {error}")
            self._asked += 1
            return None
        return found
