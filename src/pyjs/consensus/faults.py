"""Faults of state machines: after an exception, a group stops on this node, and another replica must lead it.

A stopped replica continues to store entries, but applies none. If it is elected, it transfers the leadership:
it tries one replica after another.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.consensus.engine import RaftError, Role, node_of
from pyjs.consensus.member import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from pyjs.consensus.engine import Groups
    from pyjs.consensus.member import Member
    from pyjs.core.faults import Faults
    from pyjs.core.sink import Turn


class MachineFaults:
    """The calls of state machines, and the groups that this node leads without a machine."""

    def __init__(
        self, faults: Faults, turn: Turn, engine: Groups, silent: Set[int], transfer_ns: int
    ) -> None:
        self._faults = faults
        self._turn = turn
        self._engine = engine
        self._silent = silent  # nodes that do not answer
        self._transfer_ns = transfer_ns  # time after which the engine gives up a transfer
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
        """Apply no more entries in a group whose machine has failed; its state is then old, but never wrong."""
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

    # -- groups that are led without a machine -----------------------------------------------------------------

    def check(self, member: Member) -> None:
        """Transfer the leadership to another replica, if this one leads without a machine."""
        if _is_unfit(member):
            self._hand_over(member)

    def check_again(self, members: Mapping[int, Member]) -> None:
        """Try the next replica for each group that this node still leads without a machine."""
        for group in list(self._unfit):
            member = members.get(group)
            if member is not None and _is_unfit(member):
                self._hand_over(member)
            else:
                del self._unfit[group]

    def _hand_over(self, member: Member) -> None:
        """Transfer the leadership to the replica with the most complete log; at later attempts, to the other ones."""
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


def _is_unfit(member: Member) -> bool:
    """Return whether this node leads the group although its machine has stopped."""
    return member.state is State.STOPPED and member.role == Role.LEADER
