"""Groups in doubt: with a sync interval, a power failure can lose entries that this node has acknowledged.

The other nodes rely on these entries. So a group in doubt neither votes nor stands for election, and
announces the doubt to the nodes of the other voters. A leader then forgets the acknowledgements of this replica,
and sends the missing entries again. The doubt ends

- when a leader that a quorum confirms has answered a read, and everything that the read needs is here: this leader
  was elected without this node's vote, so it has every committed entry; or
- when a majority of the voters is in doubt: the power failed for all of them. Each has lost the end of its log: at
  most the entries of the last interval. During GRACE_NS, they wait until all voters have answered, and then elect one
  with the newest last entry, so that no entry is lost that any voter has. After GRACE_NS, the voters that have
  answered continue.

If all other voters have answered, and too few of them are in doubt for the second case, each committed entry is on
one of the other voters. The voter with the newest last entry has all committed entries, so the group may elect this
voter, or another one whose last entry is just as new.

If a voter does not answer, because it is away or its log is lost, the doubt remains: only that voter may have entries
that this replica has lost. Only an operator can decide that the voter will not return. Then `accept` counts only the
voters that have answered, so entries younger than the interval may be lost.

A replica may have been cut off for longer than GRACE_NS while the majority lost entries. If it has not lost the end
of its own log, it may have committed entries that the group has lost. Then it is closed, and returns empty under a
new incarnation.

So power cuts of a minority lose nothing, and those of a majority lose entries that are younger than the interval.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus import batch
from pyjs.consensus.batch import Has
from pyjs.consensus.engine import RaftError, Role, node_of, voters_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.consensus.batch import Lacks
    from pyjs.consensus.engine import Conf, Groups
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.member import Member
    from pyjs.consensus.seams import Peers

SAY_NS = 100 * NS_PER_MS  # time between two announcements of one group
GRACE_NS = 2 * NS_PER_S  # time to wait for servers that start at about the same time
MISSING_NS = 5 * NS_PER_S  # time after which a voter that has not answered counts as missing
GROUPS_MAX = 64  # maximum number of groups announced in one tick
# Part of the engine's panic text: this replica was away while a majority lost entries that it has committed.
CONTRADICTED = "the group has lost entries that are committed here"
FORGOTTEN = "to_commit "  # part of the panic text for a log that lacks acknowledged entries


@dataclass(slots=True)
class Doubt:
    """The state of one group in doubt."""

    peer: int
    at_ns: int = 0  # time of the next announcement
    asked_ns: int = -1  # time at which the next read may be sent
    since_ns: int = -1  # time of the first announcement
    is_patient: bool = True  # True until GRACE_NS after the first announcement
    is_accepted: bool = False  # an operator accepts the loss of entries that only silent replicas have
    known: set[int] = field(default_factory=set)  # peers in doubt
    others: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # other peers -> term and index of their last entry


class Doubts:
    """The groups in doubt on this node, and the handling of announcements from other nodes."""

    def __init__(self, engine: Groups, peers: Peers, log: NodeLog) -> None:
        self._engine = engine
        self._peers = peers
        self._log = log
        # Groups of the log that may lack entries, open or not; the owner removes those that are replaced.
        self.unsure = set(log.groups) if log.is_doubtful else set()
        self._doubts: dict[int, Doubt] = {}
        self._turns: deque[int] = deque()  # groups in the order of their announcements
        # By group and peer: term and boot at the last time when the peer's acknowledgements were forgotten.
        self._forgotten: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def are_over(self) -> bool:
        """Whether the log is still marked as doubtful although none of its groups may lack entries."""
        return self._log.is_doubtful and not self.unsure

    @property
    def is_idle(self) -> bool:
        """Whether no group is in doubt."""
        return not self._doubts

    def begin(self, group: int, peer: int) -> None:
        """Begin the doubt about a group that was just opened; this replaces an earlier doubt about the group."""
        self._engine.set_doubtful(group, True)
        if group not in self._doubts:
            self._turns.append(group)
        self._doubts[group] = Doubt(peer, known={peer})
        self._count(group)

    def forget(self, group: int) -> None:
        """Forget a closed group."""
        if self._doubts.pop(group, None) is not None:
            self._turns.remove(group)
        self._forgotten = {key: last for key, last in self._forgotten.items() if key[0] != group}

    def end(self, group: int) -> None:
        """End the doubt about a group, because this replica has every committed entry."""
        with suppress(RaftError):  # a fault has closed it meanwhile
            self._engine.set_doubtful(group, False)
        self.unsure.discard(group)
        self.forget(group)

    def conclude(self, member: Member) -> bool:
        """Treat the whole log of a group as committed; return whether all its entries are applied.

        The group must have no members on other nodes. It is closed in the engine.
        """
        with suppress(RaftError):
            self._engine.close(member.group)
        self.forget(member.group)
        stored = self._log.groups[member.group]
        for index, entry in enumerate(self._log.entries(member.group), stored.start + 1):
            member.take((index, *entry))
        return member.applied == stored.last and not member.has_work

    def receive(self, node: int, found: Lacks | Has) -> None:
        """Handle an announcement from another node, or the answer of another node to an announcement."""
        if isinstance(found, Has):
            self._answered(node, found)
        else:
            self._heard(node, found)

    def _heard(self, node: int, lacks: Lacks) -> None:
        """Handle an announcement from another node, and answer with the last entry of the replica on this node.

        If this node leads the group, the engine forgets the peer's acknowledgements and sends missing entries again.
        """
        if node_of(lacks.peer) != node:
            return
        with suppress(RaftError):  # the group is not here, or the peer is no member
            status = self._engine.status(lacks.group)
            last, key = (status.term, lacks.boot), (lacks.group, lacks.peer)
            if status.role == Role.LEADER and self._forgotten.get(key) != last:
                self._engine.forget_answers(lacks.group, lacks.peer)
                self._forgotten[key] = last
        doubt = self._doubts.get(lacks.group)
        with suppress(RaftError):
            self._answer(node, lacks.group)
            if doubt is not None and lacks.peer not in doubt.known:
                doubt.known.add(lacks.peer)
                doubt.others.pop(lacks.peer, None)
                self._count(lacks.group)

    def _answer(self, node: int, group: int) -> None:
        """Send the term and index of the last entry of this node's replica to another node."""
        status = self._engine.status(group)
        term = self._engine.term_at(group, status.last)
        if term:  # otherwise the replica has no log yet
            self._peers.send(node, batch.of_has(group, status.peer, term, status.last))

    def _answered(self, node: int, has: Has) -> None:
        """Handle an answer, which names the last entry of a replica on another node."""
        doubt = self._doubts.get(has.group)
        if doubt is not None and node_of(has.peer) == node:
            doubt.others[has.peer] = has.term, has.index
            with suppress(RaftError):
                self._count(has.group)

    def _count(self, group: int) -> None:
        """Allow elections in a group in doubt if enough peers have answered."""
        doubt, status = self._doubts[group], self._engine.status(group)
        conf = status.conf
        if is_majority(doubt.known, conf):
            voters = voters_of(conf) - {doubt.peer}
            if not (doubt.is_patient and voters):
                self._engine.set_doubtful(group, False)
            elif voters <= doubt.others.keys():
                own = self._engine.term_at(group, status.last) or 0, status.last
                self._engine.set_floor(group, *max(own, *(doubt.others[peer] for peer in voters)))
            return
        sure = voters_of(conf) - doubt.known
        if doubt.is_accepted:
            sure &= doubt.others.keys()
        if not sure:
            self._engine.set_doubtful(group, False)
        elif sure <= doubt.others.keys():
            self._engine.set_floor(group, *max(doubt.others[peer] for peer in sure))

    def groups(self) -> list[int]:
        """Return the groups in doubt."""
        return list(self._doubts)

    def missing(self, group: int, now_ns: int) -> list[int]:
        """Return the numbers of the nodes whose missing answers keep a group in doubt.

        The list is empty until MISSING_NS after the first announcement, and after `accept`.
        """
        doubt = self._doubts.get(group)
        if doubt is None or doubt.is_accepted or not 0 <= doubt.since_ns < now_ns - MISSING_NS:
            return []
        with suppress(RaftError):  # closed by a fault
            conf = self._engine.status(group).conf
            sure = voters_of(conf) - doubt.known - doubt.others.keys()
            return [] if is_majority(doubt.known, conf) else sorted(node_of(peer) for peer in sure)
        return []

    def accept(self, group: int, now_ns: int) -> bool:
        """Accept the loss of entries that only missing replicas may have; return False if no replica is missing."""
        if not self.missing(group, now_ns):
            return False
        self._doubts[group].is_accepted = True
        self._count(group)
        return True

    def tick(self, now_ns: int, ask: Callable[[int, Callable[[], None]], bool]) -> None:
        """Send the announcements that are due, and start reads that end the doubt when they are answered.

        `ask(group, done)` must start a read of a group, which calls `done`, and return whether it was started.
        """
        for _ in range(min(GROUPS_MAX, len(self._turns))):
            group = self._turns[0]
            doubt = self._doubts[group]
            if doubt.at_ns > now_ns:
                return
            doubt.at_ns = now_ns + SAY_NS
            doubt.since_ns = now_ns if doubt.since_ns < 0 else doubt.since_ns
            self._turns.rotate(-1)
            with suppress(RaftError):  # a fault has closed it
                self._announce(group, doubt)
                if doubt.is_patient and doubt.since_ns <= now_ns - GRACE_NS:
                    doubt.is_patient = False
                    self._count(group)
            if doubt.asked_ns <= now_ns and ask(group, partial(self.end, group)):
                doubt.asked_ns = now_ns + 5 * SAY_NS

    def _announce(self, group: int, doubt: Doubt) -> None:
        conf = self._engine.status(group).conf
        for node in sorted({node_of(peer) for peer in voters_of(conf)} - {node_of(doubt.peer)}):
            self._peers.send(node, batch.of_lacks(group, doubt.peer, self._log.boot))


def is_majority(peers: set[int], conf: Conf) -> bool:
    """Return whether `peers` are a majority of the voters; in a joint membership, of both sets of voters."""
    return all(
        2 * len(peers.intersection(voters)) > len(voters) for voters in (conf.voters, conf.outgoing) if voters
    )


def lacks_entries(text: str) -> bool:
    """Return whether `text`, a panic message of the engine, means that the replica's log can no longer be used."""
    return CONTRADICTED in text or FORGOTTEN in text
