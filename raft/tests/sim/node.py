"""One node of the simulation: it drives the engine as the server does, with the simulated disk and network.

The state of a group is a count and a digest of its entries. All reports of a node (roles, committed entries,
acknowledgements, reads) go to the judge.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from raft.tests.sim.disk import GroupFiles, Operation, SimDisk, State
from raft.tests.sim.judge import Judge
from raft.tests.sim.net import SimNet

from pyjs_raft import (
    Conf,
    EntryKind,
    FrameError,
    Groups,
    Ready,
    Refused,
    Role,
    UnknownGroup,
    Write,
    peer_id,
)

SILENT_TICKS = 12
PULSE_TICKS = 3
INSTALL_TICKS = (30, 30, 30, 600)  # the maximum duration of an install is chosen from these
REPORT_TICKS = 40  # after this many ticks, a snapshot transfer is abandoned


def next_state(state: State, body: bytes) -> State:
    """Return the state after one more entry."""
    return state[0] + 1, zlib.crc32(body, state[1])


class SimNode:
    """A node and its process."""

    watch_ticks = 60

    def __init__(self, number: int, rng: Random, net: SimNet, judge: Judge, others: list[int]) -> None:
        self.number = number
        self.rng = rng
        self.net = net
        self.judge = judge
        self.others = others
        self.disk = SimDisk()
        self.boot = 0
        self.is_up = False
        self.paused_until = 0
        self.now = 0
        self.install_ticks: tuple[int, ...] = INSTALL_TICKS

    # -- life cycle ------------------------------------------------------------------------------------------

    def create(self, group: int, conf: Conf) -> None:
        """Write a new group; one with an empty membership waits for a snapshot."""
        start = 1 if conf.voters else 0
        birth = GroupFiles(peer_id(self.number), conf, start, start)
        self.disk.submit(Operation(group, birth=birth))
        self.disk.sync(len(self.disk.unsynced))

    def start(self, now: int) -> None:
        """Start a process with the contents of the disk."""
        self.boot += 1
        self.is_up = True
        self.now = now
        seed = self.rng.getrandbits(63)
        self.engine = Groups(self.number, seed=seed, boot=self.boot, watch_ticks=self.watch_ticks)
        self.asleep = 0
        self.closed: dict[int, int] = {}  # group -> time at which it is reopened
        self.applied: dict[int, int] = {}
        self.states: dict[int, State] = {}
        self.past: dict[tuple[int, int], State] = {}  # by group and index, for snapshots and compaction
        self.syncing: deque[tuple[int, int, int]] = deque()  # due time, token, number of operations
        self.installs: list[tuple[int, int, Write]] = []  # due time, node of the leader, the write
        self.reports: list[tuple[int, int, int]] = []  # due time, group, peer
        # by group and number: floor, and index (0: not known yet)
        self.reads: dict[tuple[int, int], tuple[int, int]] = {}
        self.heard = dict.fromkeys(self.others, now)
        self.silent: set[int] = set()
        for group in self.disk.written:
            self._open(group)

    def _open(self, group: int) -> None:
        files = self.disk.written[group]
        term, vote, commit = files.hard
        self.engine.open(
            group,
            f"g{group}",
            files.peer,
            files.conf,
            term=term,
            vote=vote,
            commit=commit,
            start=files.start,
            start_term=files.start_term,
            entries=list(files.entries),
        )
        self.engine.set_prompt(group, group % 2 == 1)
        self.applied[group] = files.start
        self.states[group] = files.state
        self.past[group, files.start] = files.state

    def stop(self) -> None:
        """End the process; written files remain."""
        self.is_up = False
        self.disk.sync(len(self.disk.unsynced))  # the kernel writes them eventually

    def cut_power(self) -> None:
        """End the process and lose everything that was not synced."""
        self.is_up = False
        self.disk.lose_power(self.rng)

    def peer(self, group: int) -> int:
        """Return the peer of a group on this node."""
        return self.disk.written[group].peer

    def close(self, group: int, until: int) -> None:
        """Close one group, as after a panic, unless writes are pending."""
        if self.syncing or group in self.closed or any(one[2].group == group for one in self.installs):
            return
        self.closed[group] = until
        self._close(group)

    def replace(self, group: int) -> None:
        """Lose the files of a group, and restart as another peer."""
        files = GroupFiles(self.peer(group) + 1, Conf(), 0, 0)
        self.disk.submit(Operation(group, birth=files))
        self.disk.sync(len(self.disk.unsynced))
        if self.closed.pop(group, None) is None:
            self._close(group)
        self._open(group)
        self.judge.replaced += 1

    def _close(self, group: int) -> None:
        self.engine.close(group)
        self.installs = [one for one in self.installs if one[2].group != group]
        self.reads = {key: read for key, read in self.reads.items() if key[0] != group}

    def is_running(self, now: int) -> bool:
        """Return whether the process is running now."""
        return self.is_up and now >= self.paused_until

    # -- a turn ----------------------------------------------------------------------------------------------

    def receive(self, source: int, data: bytes, *, is_damaged: bool) -> None:
        """Handle a batch from another node."""
        self.heard[source] = self.now
        if source in self.silent:
            self.silent.discard(source)
            self.engine.node_heard(source)
        try:
            self.engine.step(data)
        except FrameError as error:
            if not is_damaged:
                self.judge.fail(f"node {self.number} refuses a good batch of node {source}: {error}")
            self.judge.damaged += 1

    def turn(self, now: int) -> None:
        """Advance the time by one tick, then handle all results."""
        self.now = now
        self.engine.tick()
        self._watch()
        self._finish_installs()
        self._finish_syncs()
        self._count_sleep()
        for _ in range(2):  # stored entries may be committed in the same turn
            self._take(self.engine.ready())
            self._finish_syncs()
        for group, text in self.engine.quarantined():
            self.judge.fail(f"node {self.number}: group {group} quarantined: {text}")

    def _count_sleep(self) -> None:
        count, awake = self.engine.counts()
        self.judge.sleeps += max(0, count - awake - self.asleep)
        self.asleep = count - awake

    def _watch(self) -> None:
        for group in [group for group, at in self.closed.items() if at <= self.now]:
            del self.closed[group]
            self._open(group)
        if self.now % PULSE_TICKS == 0:
            for node in self.others:
                self.net.send(self.now, self.number, node, b"")
        for node, at in self.heard.items():
            if self.now - at > SILENT_TICKS and node not in self.silent:
                self.silent.add(node)
                self.engine.node_silent(node)
        self._report_snapshots()

    def _report_snapshots(self) -> None:
        reports, self.reports = self.reports, []
        for due, group, peer in reports:
            has_arrived = (group, peer) in self.judge.arrived
            self.judge.arrived.discard((group, peer))
            if has_arrived or due <= self.now:
                self._try(partial(self.engine.report_snapshot, group, peer, has_arrived))
            else:
                self.reports.append((due, group, peer))

    def _take(self, ready: Ready) -> None:
        self._send(ready.frames)
        before = len(self.disk.unsynced)
        for write in ready.writes:
            self._write(write)
        for group, term, role, _ in ready.roles:
            if role == Role.LEADER:
                self.judge.leads(group, term, self.number, self.engine)
        for group, index, term, kind, body in ready.committed:
            self._apply(group, index, term, kind, body)
        for group, context, index in ready.reads:
            self._read_confirmed(group, context, index)
        for group, _ in ready.wanted:
            self._offer(group)
        for group, peer, _ in ready.snapshots:
            self.reports.append((self.now + REPORT_TICKS, group, peer))
        if ready.token or len(self.disk.unsynced) > before:
            self._begin_sync(ready.token, len(self.disk.unsynced) - before)

    def _begin_sync(self, token: int, count: int) -> None:
        due = max(self.now + self.rng.choice((0, 0, 0, 1, 3)), self.syncing[-1][0] if self.syncing else 0)
        self.syncing.append((due, token, count))

    def _finish_syncs(self) -> None:
        while self.syncing and self.syncing[0][0] <= self.now:
            _, token, count = self.syncing.popleft()
            self.disk.sync(count)
            self._report_stored(token)

    def _report_stored(self, token: int) -> None:
        self._send(self.engine.stored(token))

    def _send(self, frames: list[tuple[int, bytes, list[tuple[int, int, int]]]]) -> None:
        for node, data, _ in frames:
            self.net.send(self.now, self.number, node, data)

    def _write(self, write: Write) -> None:
        if write.hard or write.entries:
            self.disk.submit(self._operation(write))
        if write.snapshot is not None:
            leader = self.engine.status(write.group).leader >> 32
            self.installs.append(
                (self.now + self.rng.randrange(1, self.rng.choice(self.install_ticks)), leader, write)
            )

    def _operation(self, write: Write) -> Operation:
        return Operation(write.group, write.hard, write.first, tuple(write.entries))

    # -- the application -------------------------------------------------------------------------------------

    def _apply(self, group: int, index: int, term: int, kind: int, body: bytes) -> None:
        assert index == self.applied[group] + 1, (group, index, self.applied[group])
        self.applied[group] = index
        if kind == EntryKind.DATA:
            self.states[group] = next_state(self.states[group], body)
        self.past[group, index] = self.states[group]
        self.judge.commits(self.number, group, index, (term, kind, body), self.states[group], self.engine)
        for key, (floor, needed) in list(self.reads.items()):
            if key[0] == group and 0 < needed <= index:
                del self.reads[key]
                self.judge.read(group, floor, index, self.states[group])

    def propose(self, group: int, body: bytes) -> None:
        """Propose an entry if this node leads; the judge counts it as acknowledged when it is committed here."""
        (done,) = self.engine.propose([(group, body)])
        if done is not None:
            self.judge.proposed(self.number, group, *done)

    def read(self, group: int) -> None:
        """Begin a linearizable read."""
        floor = self.judge.floor(group)
        self._try(lambda: self.reads.__setitem__((group, self.engine.read_index(group)), (floor, 0)))

    def _read_confirmed(self, group: int, context: int, index: int) -> None:
        floor, _ = self.reads.pop((group, context), (None, 0))
        if floor is None:
            return
        if self.applied[group] >= index:
            self.judge.read(group, floor, self.applied[group], self.states[group])
        else:
            self.reads[group, context] = (floor, index)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (Refused, UnknownGroup):
            pass

    # -- snapshots and compaction ----------------------------------------------------------------------------

    def compact(self, group: int) -> None:
        """Move the start of the log to the last applied entry, together with the state there."""
        index = self.applied[group]
        if (
            group in self.closed
            or index <= self.disk.written[group].start
            or any(one[2].group == group for one in self.installs)
        ):
            return
        at, term, conf = self.engine.compact(group, index)
        before = len(self.disk.unsynced)
        self.disk.submit(Operation(group, point=(at, term, conf, self.states[group])))
        self._begin_sync(0, len(self.disk.unsynced) - before)

    def _offer(self, group: int) -> None:
        index = self.applied[group]
        descriptor = index.to_bytes(8, "little") + bytes(32)
        self.judge.bulk[self.number, group, index] = self.states[group]
        self._try(lambda: self.engine.offer_snapshot(group, index, descriptor))

    def _finish_installs(self) -> None:
        due = [one for one in self.installs if one[0] <= self.now]
        self.installs = [one for one in self.installs if one[0] > self.now]
        for one in due:
            self._finish_install(*one)

    def _finish_install(self, due: int, source: int, write: Write) -> None:
        point = write.snapshot
        assert point is not None
        if self.syncing:  # the vote must be written before the snapshot
            self.installs.append((self.now + 1, source, write))
            return
        state = self.judge.bulk.get((source, write.group, point.index))
        if state is None or (source, self.number) in self.net.cuts or source in self.silent:
            self._give_up(write.group)
            return
        self._install(write, state)
        self.judge.arrived.add((write.group, self.peer(write.group)))
        self._send(self.engine.installed(write.group, point.index))

    def _install(self, write: Write, state: State) -> None:
        point = write.snapshot
        assert point is not None
        where = (point.index, point.term, point.conf, state)
        self.disk.submit(Operation(write.group, point=where))
        self.disk.sync(len(self.disk.unsynced))
        self._take_state(write.group, point.index, state)

    def _take_state(self, group: int, index: int, state: State) -> None:
        self.applied[group] = index
        self.states[group] = state
        self.past[group, index] = state
        self.judge.installed(self.number, group, index, state)

    def _give_up(self, group: int) -> None:
        """Start again with the log before the snapshot."""
        self.engine.close(group)
        self._open(group)
