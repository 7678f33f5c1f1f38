"""Compaction of the logs of groups, which finds full logs and creates the states that replace the cut entries."""

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
    """The queue of groups whose logs have grown too large, and the operations that cut these logs."""

    def __init__(self, engine: Groups, log: NodeLog, size_max: int, silent: Set[int]) -> None:
        self._engine = engine
        self._log = log
        self._size_max = size_max  # maximum size of one group's log, in bytes
        self._silent = silent  # nodes that do not answer
        self.full: dict[int, None] = {}  # queued groups

    def begin(self, member: Member) -> None:
        """Set the log size at which a newly opened group is queued for the first time."""
        member.compact_at = self._size_max

    def check(self, member: Member) -> None:
        """Queue a group if its log is larger than `member.compact_at` bytes."""
        if member.log_size > member.compact_at:
            self.full[member.group] = None

    def add(self, groups: Iterable[int]) -> None:
        """Queue groups by number, whatever the size of their logs."""
        self.full.update(dict.fromkeys(groups))

    def take(self) -> int:
        """Remove the last group from the queue and return its number; the queue must not be empty."""
        group, _ = self.full.popitem()
        return group

    def may_cut(self, member: Member) -> bool:
        """Return whether the log of a group may be cut now.

        This method also sets the log size at which the group is queued again.
        """
        member.compact_at = member.log_size + self._size_max // 4
        start = self._log.groups[member.group].start
        is_urgent = member.group in self._log.crowding()
        return member.cut_end() > start and (is_urgent or not self._is_behind(member))

    def must_drop(self, member: Member) -> bool:
        """Return whether the log of a stopped replica is too large, or prevents the reuse of a file of the node log.

        This method also sets the log size at which the group is queued again.
        """
        member.compact_at = member.log_size + self._size_max // 4
        is_large = member.log_size > PATIENCE * self._size_max
        return is_large or member.group in self._log.crowding()

    def cut(self, member: Member, index: int, state: bytes, size: int) -> bool:
        """Stage `state`, the state after entry `index`, as the new start of the log of a group.

        This drops entries of about `size` bytes. Return False if the engine cannot compact the log now.

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
        """Return whether this node leads the group and a replica on a responding node lacks applied entries.

        Return False if the log is too large to wait for such a replica.
        """
        if member.role != Role.LEADER or member.log_size > PATIENCE * self._size_max:
            return False
        matched = self._engine.status(member.group).matched
        return any(index < member.applied and node_of(peer) not in self._silent for peer, index in matched)


@dataclass(slots=True)
class Made:
    """A machine's state that is being created, and the function `ready` to call with the finished state."""

    member: Member
    index: int
    time_ns: int
    size: int  # approximate bytes of the log up to `index`
    ready: Callable[[Made, bytes], None]
    steps: Making | None = None


class States:
    """The machines' states that are being created for snapshots and compactions.

    A large state is created in steps. With a sync interval, a finished state is held back until all replicas have
    had the time to sync the entries that it replaces. Otherwise, after a power failure of all nodes, the log of this
    node might begin after the last entries of the other logs.
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
        """Whether a state is waiting for `release`."""
        return bool(self._waiting)

    def make(
        self, member: Member, ready: Callable[[Made, bytes], None], now_ns: int, index: int | None = None
    ) -> None:
        """Create the state after the last applied entry, and call `ready` with this state, now or later.

        `ready` is not called if the state cannot be created, or if an equal request is already pending. `index` is
        the entry after which the log may begin with this state (None: the last applied entry).
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
        """Run the next step of the first state in `making`; drop this state if its group has closed or stopped."""
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
        """Pass on the states whose waiting time is over; drop those of closed or stopped groups."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, made, data = self._waiting.popleft()
            if members.get(made.member.group) is made.member and made.member.state is State.RUNNING:
                _give(made, data)


def _give(made: Made, data: bytes) -> None:
    if made.member.applied >= made.index:  # a group that was reopened may have applied fewer entries
        made.ready(made, descriptor.describe(data, made.time_ns) + data)
