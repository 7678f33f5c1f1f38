"""Nodes with a flaw that the judge must detect within some seeds, which proves that the judge works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.sim.consensus.log import DIRECTORY, MemoryLog, Store
from tests.sim.consensus.node import SimNode
from tests.sim.consensus.world import World

from pyjs.consensus.consensus import Consensus
from pyjs.consensus.engine import Conf, Point, Write
from pyjs.consensus.log.durability import Due, Durability
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import Members
from pyjs.consensus.member import Member
from pyjs.consensus.seams import Machine
from pyjs.store.format.lost_sync import forget_lost_sync


class HastyDurability(Durability):
    """Reports writes as durable before they are."""

    def add(self, due: Due, needs_sync: bool) -> None:
        super().add(due, False)
        self.wanted = self.written  # the writes are still synced later


class HastyConsensus(Consensus):
    """Reports an entry or a vote to its peers before the entry or vote is durable."""

    durability_class = HastyDurability


class ForgetfulLog(MemoryLog):
    """Does not store votes."""

    def write(self, write: Write, payloads: Sequence[bytes]) -> bool:
        super().write(write, payloads)
        hard = self.groups[write.group].hard
        self._stage(
            lambda groups: groups.__setitem__(
                write.group, replace(groups[write.group], hard=(hard[0], 0, hard[2]))
            )
        )
        return True


class ForgetfulStore(Store):
    """Does not know at a start that a sync has failed."""

    def begin(self) -> NodeLog:
        forget_lost_sync(self._files, DIRECTORY)
        return super().begin()


class PointlessLog(MemoryLog):
    """Cuts the log, but does not write the state at the new start."""

    def point(self, group: int, index: int, term: int, conf: Members, state: bytes) -> None:
        super().point(group, index, term, conf, self.groups[group].state)


class CarelessConsensus(Consensus):
    """Uses a snapshot before its data has arrived."""

    def _fetch(self, group: int, point: Point) -> None:
        super()._fetch(group, point)
        self._members[group].note_start(point.index)

    def _installed(self, member: Member, index: int) -> None:
        self._snapshots.finish(member.group)
        self._outbox.send(self._engine.installed(member.group, index))


class StaleConsensus(Consensus):
    """Answers reads without confirmation if it believes that it leads."""

    def read_index(self, group: int, done: Callable[[], None]) -> bool:
        if self._members[group].leads:
            done()
            return True
        return False


class EarlyMember(Member):
    """Does not wait until the index that a read needs is applied."""

    def wants_read(self, index: int, done: Callable[[], None]) -> None:
        done()


class TrustfulMember(Member):
    """Matches a proposal with any entry at its index."""

    def drop_proposals(self) -> None:
        """Do nothing."""

    def drop_impatient(self) -> None:
        """Do nothing."""

    def enter_term(self, term: int) -> None:
        self.applied_term = term

    def proposal_of(self, index: int, term: int) -> object:
        return self.pending.pop(index, (0, None))[1]


class BoldConsensus(Consensus):
    """Votes after a power cut although it may lack entries that it acknowledged."""

    def open(
        self, group: int, name: str, machine: Machine, conf: Conf | None = None, incarnation: int = 1
    ) -> None:
        self.doubts.unsure.clear()
        super().open(group, name, machine, conf, incarnation)


class SameConsensus(Consensus):
    """Returns as the same peer after it has lost its log."""

    def open(
        self, group: int, name: str, machine: Machine, conf: Conf | None = None, incarnation: int = 1
    ) -> None:
        stored = self._log.groups.get(group)
        if conf is None and stored is not None and stored.is_damaged:
            conf = Conf()
        super().open(group, name, machine, conf, incarnation)


def with_consensus(consensus: type[Consensus]) -> type[SimNode]:
    """Return a node class whose process has this flaw."""
    return type("MutantNode", (SimNode,), {"consensus_class": consensus})


def with_member(member: type[Member]) -> type[SimNode]:
    """Return a node class whose groups have this flaw."""
    return with_consensus(type("MutantConsensus", (Consensus,), {"member_class": member}))


def with_log(log: type[MemoryLog]) -> type[SimNode]:
    """Return a node class whose log has this flaw."""
    return type("MutantNode", (SimNode,), {"store_class": staticmethod(lambda seed: log())})


MUTANTS: dict[str, type[SimNode]] = {
    "tells before durable": with_consensus(HastyConsensus),
    "forgets its vote": with_log(ForgetfulLog),
    "forgets a failed sync": type("MutantNode", (SimNode,), {"store_class": ForgetfulStore}),
    "applies past a snapshot": with_consensus(CarelessConsensus),
    "cuts the log without the state": with_log(PointlessLog),
    "reads without asking": with_consensus(StaleConsensus),
    "reads before it has applied": with_member(EarlyMember),
    "gives proposals back by index alone": with_member(TrustfulMember),
    "votes in doubt": with_consensus(BoldConsensus),
    "comes back as the same peer": with_consensus(SameConsensus),
}


def world_of(name: str) -> type[World]:
    """Return a class of worlds whose nodes have this flaw, with the power cuts, storms or reads that reveal it."""
    loses = name in ("votes in doubt", "comes back as the same peer")
    has_bad_disks = name == "forgets a failed sync"
    settings = {
        "has_changes": False,
        "closings": 0.0,
        "troubles": 13 if loses else 9 if has_bad_disks else 10,
        "failures": 1.0 if has_bad_disks else 0.3,
        "is_always": name not in ("votes in doubt", "forgets a failed sync"),
        "storms": 1.0 if name in ("tells before durable", "forgets its vote") else 0.0,
        "reads": 1.0 if name.startswith("reads") else 0.2,
    }
    return type("MutantWorld", (World,), {"node_class": MUTANTS[name], **settings})
