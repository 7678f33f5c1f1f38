"""Compaction of the logs of groups: finds full logs, and creates the states that replace the cut entries."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS
from pyjs.consensus import descriptor
from pyjs.consensus.engine import RaftError, Role, node_of
from pyjs.consensus.member import State
from pyjs.consensus.snapshots import STATE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

    from pyjs.consensus.engine import Groups
    from pyjs.consensus.faults import MachineFaults
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.member import Member
    from pyjs.consensus.seams import Making

SYNC_NS = 100 * NS_PER_MS  # expected maximum time of a sync
PATIENCE = 4  # factor by which a log may exceed its usual size while it waits for a replica that is behind


class Compaction:
    """Finds the groups whose log has grown too large, and cuts their logs."""

    def __init__(self, engine: Groups, log: NodeLog, size_max: int, silent: Set[int]) -> None:
        self._engine = engine
        self._log = log
        self._size_max = size_max  # maximum size of one group's log, in bytes
        self._silent = silent  # nodes that do not answer
        self.full: dict[int, None] = {}  # queued groups

    def begin(self, member: Member) -> None:
        """Begin to watch the log of a group."""
        member.compact_at = self._size_max

    def check(self, member: Member) -> None:
        """Queue a group if its log is full."""
        if member.log_size > member.compact_at:
            self.full[member.group] = None

    def add(self, groups: Iterable[int]) -> None:
        """Queue groups because their entries prevent an old file of the node log from being reused."""
        self.full.update(dict.fromkeys(groups))

    def take(self) -> int:
        """Remove a group from the queue and return it; the queue must not be empty."""
        group, _ = self.full.popitem()
        return group

    def may_cut(self, member: Member) -> bool:
        """Return whether the log of a queued group may be cut now; if not, queue the group when its log has grown."""
        member.compact_at = member.log_size + self._size_max // 4
        start = self._log.groups[member.group].start
        is_urgent = member.group in self._log.crowding()
        return member.cut_end() > start and (is_urgent or not self._is_behind(member))

    def must_drop(self, member: Member) -> bool:
        """Return whether the log of a stopped replica, which applies no entries, has reached its limit."""
        member.compact_at = member.log_size + self._size_max // 4
        is_large = member.log_size > PATIENCE * self._size_max
        return is_large or member.group in self._log.crowding()

    def cut(self, member: Member, index: int, state: bytes, size: int) -> bool:
        """Stage the state after an applied entry as the new start of the log; this drops about `size` bytes.

        Return False if the engine cannot compact the log now.

        Raises:
            CorruptRecord: the log of the group is damaged.
        """
        try:
            index, term, conf = self._engine.compact(member.group, index)
        except RaftError:
            return False  # a snapshot for this replica is being transferred, or has just arrived
        self._log.point(member.group, index, term, conf, state)
        member.note_cut(size)
        member.compact_at = self._size_max
        return True

    def _is_behind(self, member: Member) -> bool:
        """Return whether a replica that answers needs entries before the new start.

        Return False if the log is too large to wait.
        """
        if member.role != Role.LEADER or member.log_size > PATIENCE * self._size_max:
            return False
        matched = self._engine.status(member.group).matched
        return any(index < member.applied and node_of(peer) not in self._silent for peer, index in matched)


@dataclass(slots=True)
class Made:
    """The state of a machine after an entry, and the function that must be called with this state."""

    member: Member
    index: int
    time_ns: int
    size: int  # approximate bytes of the log up to `index`
    ready: Callable[[Made, bytes], None]
    steps: Making | None = None


class States:
    """The states of machines, as descriptors and data. A large state is created in steps.

    With a sync interval, a state is used only after a pause in which a quorum must have synced its entries.
    Otherwise, after a power failure of all nodes, this log might begin after the last entry of all other logs.
    """

    def __init__(self, faults: MachineFaults, sync_interval_ns: int) -> None:
        self._faults = faults
        # time in ns after which every replica has synced the entries that it acknowledged
        self._wait_ns = 2 * sync_interval_ns + SYNC_NS if sync_interval_ns else 0
        self.making: deque[Made] = deque()  # states that are being created
        # time at which the state may be used, the state, its bytes
        self._waiting: deque[tuple[int, Made, bytes]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a state waits for `release`."""
        return bool(self._waiting)

    def make(
        self, member: Member, ready: Callable[[Made, bytes], None], now_ns: int, index: int | None = None
    ) -> None:
        """Call `ready` with the state after the last applied entry, now or later; never if it cannot be created.

        The log may begin after `index`, an earlier entry, if the state together with the entries after
        `index` gives the same result.
        """
        if member.state is State.STOPPED or member.is_installing:
            return
        known = [*self.making, *(made for _, made, _ in self._waiting)]
        if any(each.member is member and each.ready == ready for each in known):
            return
        index = member.applied if index is None else index
        made = Made(member, index, member.applied_time_ns, member.applied_size(), ready)
        try:
            data = member.machine.snapshot()
        except Exception as error:
            self._faults.stop(member, error)
            return
        if data is None or isinstance(data, bytes):
            self._end(made, data, now_ns)
        else:
            made.steps = data
            self.making.append(made)

    def go_on(self, members: Mapping[int, Member], now_ns: int) -> None:
        """Run one step of the creation of a state."""
        if not self.making:
            return
        made = self.making.popleft()
        member = made.member
        if members.get(member.group) is not member or member.state is State.STOPPED:
            return
        assert made.steps is not None
        try:
            next(made.steps)
        except StopIteration as end:
            self._end(made, end.value, now_ns)
        except Exception as error:
            self._faults.stop(member, error)
        else:
            self.making.appendleft(made)

    def _end(self, made: Made, data: bytes | None, now_ns: int) -> None:
        if data is None:
            return
        if len(data) > STATE_MAX:
            error = ValueError(f"a state of {len(data)} bytes, at most {STATE_MAX} can be sent")
            self._faults.stop(made.member, error)
        elif self._wait_ns:
            self._waiting.append((now_ns + self._wait_ns, made, data))
        else:
            _give(made, data)

    def release(self, members: Mapping[int, Member], now_ns: int) -> None:
        """Use the states that have waited long enough."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, made, data = self._waiting.popleft()
            if members.get(made.member.group) is made.member and made.member.state is State.RUNNING:
                _give(made, data)


def _give(made: Made, data: bytes) -> None:
    if made.member.applied >= made.index:  # a group that was reopened may have applied fewer entries
        made.ready(made, descriptor.describe(data, made.time_ns) + data)
