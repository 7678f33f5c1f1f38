"""Faults of state machines: after an exception, a group stops on this node, and another replica must lead it.

A stopped replica continues to store entries, but applies none. If it is elected, it transfers the leadership:
it tries one replica after another.

A group whose log is damaged, or lacks entries that were acknowledged, is closed. Its log is dropped, and the owner of
the machine opens the group again. The new replica is empty until the leader has added it to the group.

The voters of an idle group sleep, and would notice only after minutes that the leader has closed it. So the closing
node asks one voter after another to start an election ("timeout now", docs/raft-frames.md), until it knows a leader
of a later term: a candidate may be lost before it has woken the others. Votes decide as in any election, so a late or
repeated request does no harm.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from xxhash import xxh64_intdigest

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus import batch
from pyjs.consensus.engine import Conf, RaftError, Role, incarnation_of, node_of, peer_id
from pyjs.consensus.member import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from pyjs.base.log import Log
    from pyjs.consensus.engine import Groups
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.member import Member
    from pyjs.consensus.seams import Machine, Peers
    from pyjs.core.faults import Faults
    from pyjs.core.sink import Turn

REOPEN_NS = (
    # pause before a group that has panicked is reopened; doubled by each further panic, up to 64 s
    NS_PER_S
)
ASK_NS = 200 * NS_PER_MS  # between two requests to start an election
ASKED_NS = 200 * NS_PER_S  # after which no voter sleeps any more, since none has heard from the leader
ASKS = 64  # maximum number of requests in one tick
# Fields of a frame of the engine (docs/raft-frames.md).
_SUM = Struct("<II")  # size, checksum
# version, kind, flags, 0, count, group, from, to, term, and seven fields that are 0 here
_REST = Struct("<4BI11Q")
_FIELDS = Struct("<I5xB6xQ16xQ")  # size, kind, group, term
_TIMEOUT_NOW = 10
_OF_LEADERS = (1, 7, 9)  # append, heartbeat, snapshot


class MachineFaults:
    """The guard of calls to state machines, and the groups that this node leads with a stopped machine."""

    def __init__(
        self, faults: Faults, turn: Turn, engine: Groups, silent: Set[int], transfer_ns: int
    ) -> None:
        self._faults = faults
        self._turn = turn
        self._engine = engine
        self._silent = silent  # nodes that do not answer
        self._transfer_ns = transfer_ns  # time after which the engine gives up a transfer
        self._panics: Counter[int] = Counter()  # number of panics of each group in the engine
        # Groups that this node leads without a machine: number of attempts, time of the next attempt.
        self._unfit: dict[int, tuple[int, int]] = {}

    # -- calls of machines -------------------------------------------------------------------------------------

    def guard(self, member: Member, call: Callable[[], object]) -> None:
        """Call a machine; if it raises an exception, stop its group on this node."""
        try:
            call()
        except Exception as error:
            self.stop(member, error)

    def stop(self, member: Member, error: Exception) -> None:
        """Report `error`, which a machine has raised, and apply no more entries in its group.

        If this node leads the group, it begins to transfer the leadership to another replica.
        """
        self._faults.report("apply", f"a replica: {member} stops here", error, self._turn.now)
        try:
            member.stop()
        except Exception as again:
            self._faults.report("apply", f"the end of {member}", again, self._turn.now)
        self.check(member)

    def end(self, member: Member) -> None:
        """Stop a group because this node leaves replication."""
        try:
            member.take_role(member.term, Role.FOLLOWER, 0)
            member.stop()
        except Exception as error:
            self._faults.report("apply", f"the end of {member}", error, self._turn.now)

    def reopen_ns(self, member: Member) -> int:
        """Count a panic of a group in the engine, and return the time in ns at which to reopen the group.

        The pause doubles with each panic of the group, from 1 s up to 64 s.
        """
        pause_ns = REOPEN_NS << min(self._panics[member.group], 6)
        self._panics[member.group] += 1
        return self._turn.now + pause_ns

    # -- groups that are led without a machine -----------------------------------------------------------------

    def check(self, member: Member) -> None:
        """Transfer the leadership to another replica if this node leads the group with a stopped machine."""
        if _is_unfit(member):
            self._hand_over(member)

    def check_again(self, members: Mapping[int, Member]) -> None:
        """Try the next replica as the leader of each group that this node still leads with a stopped machine."""
        for group in list(self._unfit):
            member = members.get(group)
            if member is not None and _is_unfit(member):
                self._hand_over(member)
            else:
                del self._unfit[group]

    def _hand_over(self, member: Member) -> None:
        """Transfer the leadership to the replica with the most complete log; later attempts take other replicas."""
        tries, at_ns = self._unfit.get(member.group, (0, 0))
        if self._turn.now < at_ns:
            return
        self._unfit[member.group] = tries + 1, self._turn.now + self._transfer_ns
        with suppress(RaftError):  # this node has lost the leadership
            found = self._engine.status(member.group)
            others = [(index, peer) for peer, index in found.matched if peer in found.conf.voters]
            heirs = [peer for _, peer in sorted(others, reverse=True) if peer != member.peer]
            heirs = [peer for peer in heirs if node_of(peer) not in self._silent] or heirs
            if heirs:
                self._engine.transfer(member.group, heirs[tries % len(heirs)])


@dataclass(slots=True)
class Succession:
    """A closed group that this node led, and the progress of the requests to its voters to start an election."""

    peer: int  # of this node
    term: int
    voters: Sequence[int]  # other peers, in the order in which they are asked
    end_ns: int
    at_ns: int  # of the next request
    asks: int = 0


class Successions:
    """The groups that need a leader because this node has closed them."""

    def __init__(self, peers: Peers, silent: Set[int]) -> None:
        self._peers = peers
        self._silent = silent  # nodes that do not answer
        self.open: dict[int, Succession] = {}  # by group, until it is led again

    @property
    def is_idle(self) -> bool:
        """Whether no voter has to be asked."""
        return not self.open

    def begin(self, member: Member, now_ns: int) -> None:
        """If this node leads the group that is being closed, ask a voter of the group to start an election."""
        voters = sorted(peer for peer in member.voters if peer != member.peer)
        if member.role != Role.LEADER or not voters:
            return
        first = member.group % len(voters)
        voters = voters[first:] + voters[:first]
        self.open[member.group] = Succession(member.peer, member.term, voters, now_ns + ASKED_NS, now_ns)
        self._ask(member.group, now_ns)

    def _ask(self, group: int, now_ns: int) -> None:
        """Ask the next voter to start an election; voters on silent nodes are asked only if there are no others."""
        found = self.open[group]
        voters = [peer for peer in found.voters if node_of(peer) not in self._silent] or found.voters
        peer = voters[found.asks % len(voters)]
        found.asks, found.at_ns = found.asks + 1, now_ns + ASK_NS
        rest = _REST.pack(1, _TIMEOUT_NOW, 0, 0, 0, group, found.peer, peer, found.term, *(0,) * 7)
        head = _SUM.pack(_SUM.size + len(rest), xxh64_intdigest(rest) & 0xFFFFFFFF)
        self._peers.send(node_of(peer), batch.of_frames(head + rest, ()))

    def heard(self, frames: bytes) -> None:
        """End the requests for each group for which one of these frames shows a leader of a later term.

        The engine must have accepted the frames, which are concatenated.
        """
        at = 0
        while at < len(frames) and self.open:
            size, kind, group, term = _FIELDS.unpack_from(frames, at)
            found = self.open.get(group)
            if found is not None and kind in _OF_LEADERS and term > found.term:
                del self.open[group]
            at += size

    def forget(self, group: int) -> None:
        """Forget a group that is removed."""
        self.open.pop(group, None)

    def tick(self, now_ns: int, members: Mapping[int, Member]) -> None:
        """Repeat the requests that are due, and end those of groups with a new leader or an expired time limit.

        `members` are the groups that are open on this node.
        """
        due = []
        for group, found in list(self.open.items()):
            member = members.get(group)
            is_led = member is not None and member.leader and member.term > found.term
            if is_led or found.end_ns <= now_ns:
                del self.open[group]
            elif found.at_ns <= now_ns:
                due.append(group)
        for group in due[:ASKS]:
            self._ask(group, now_ns)
            self.open[group] = self.open.pop(group)  # the others come first in the next tick


class LostGroups:
    """The groups that this node has closed because their log is damaged, too large, or lacks entries."""

    def __init__(self, faults: Faults, report: Log, turn: Turn, log: NodeLog, node: int) -> None:
        self._faults = faults
        self._report = report
        self._turn = turn
        self._log = log
        self._node = node
        self._machines: dict[int, Machine] = {}

    def add(self, member: Member) -> None:
        """Add a group that has been closed. The caller must call `renew` later."""
        self._machines[member.group] = member.machine

    def forget(self, group: int) -> None:
        """Forget a group that is opened or removed."""
        self._machines.pop(group, None)

    def renew(self, group: int) -> bool:
        """Replace the log of a lost group with an empty one, and call its machine to open the group again.

        Return whether a record was staged in the node log. The new replica has a higher incarnation. A log that is
        marked as damaged is replaced only when the group is opened.
        """
        machine, stored = self._machines.pop(group, None), self._log.groups.get(group)
        if machine is None:
            return False
        is_dropped = False
        if stored is not None and not stored.is_damaged:  # otherwise the next opening drops it
            is_dropped = True
            incarnation = incarnation_of(stored.peer) + 1
            self._log.create(group, stored.name, peer_id(self._node, incarnation), Conf(), 0, 0)
            self._report.error(
                f'The log of group {group} ("{stored.name}") is dropped: the replica returns empty,'
                f" as replica {incarnation} of this server"
            )
        try:
            machine.renewed()
        except Exception as error:
            self._faults.report("apply", f"the return of group {group}", error, self._turn.now)
        return is_dropped


def _is_unfit(member: Member) -> bool:
    """Return whether this node leads the group although the group's machine has stopped."""
    return member.state is State.STOPPED and member.role == Role.LEADER
