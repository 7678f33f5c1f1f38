"""Opens the metadata group on one server, and leads it if this server is elected.

A server opens the group in its log. If the log has no group, the server agrees on the first members by the rules of
jetstream/cluster/bootstrap: it sends words to all connected servers. The number of the group contains the digest of
its first members, so votes of different groups never mix.

Each server sends its description to the leader until the metadata has it. The leader adapts the members of the group
to the servers, one change at a time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus.engine import Change, Conf, Refused, incarnation_of, peer_id
from pyjs.jetstream.cluster.bootstrap import Bootstrap, Do, Word
from pyjs.jetstream.cluster.entries import ServerDescribed, encode
from pyjs.jetstream.cluster.membership import Members, Move, Peer, next_change
from pyjs.jetstream.member.notes import Description, Saying, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from pyjs.base.log import Log
    from pyjs.base.rng import Rng
    from pyjs.consensus.consensus import Consensus
    from pyjs.consensus.log.group import StoredGroup
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.bootstrap import Membership
    from pyjs.jetstream.cluster.bootstrap import Step as FirstStep
    from pyjs.jetstream.cluster.membership import MemberChange
    from pyjs.jetstream.cluster.servers import Server
    from pyjs.jetstream.member.identity import StoreIdentity
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.notes import Note
    from pyjs.jetstream.member.waiters import Waiters

META_MIN = 1 << 63  # groups of streams have lower numbers
NAME = "META"
SPEAK_NS = 250 * NS_PER_MS
DESCRIBE_NS = NS_PER_S
CHANGE_NS = NS_PER_S
KEEP_NS = 10 * NS_PER_S  # time that a removed server has to receive the last entries about its streams
LAG_MAX = 100  # entries that a replica may lack and still count as current
_CHANGES = {
    Move.ADD_LEARNER: int(Change.ADD_LEARNER),
    Move.ADD_VOTER: int(Change.ADD_VOTER),
    Move.DEMOTE: int(Change.ADD_LEARNER),
    Move.REMOVE: int(Change.REMOVE),
}


class Way(Protocol):
    """The part of the server that the group needs."""

    online: set[int]

    def tell(self, node: int, note: Note) -> None:
        """Send a note to another server."""


class MetaGroup:
    """The metadata group on one server, with the agreement on its first members and the changes of its members."""

    def __init__(
        self,
        server: Server,
        way: Way,
        identity: StoreIdentity,
        consensus: Consensus,
        machine: MetaMachine,
        waiters: Waiters,
        log: Log,
        expected: Callable[[], int],
    ) -> None:
        self._server = server  # the description of this server
        self._way = way
        self._identity = identity
        self._consensus = consensus
        self._machine = machine
        self._waiters = waiters
        self._log = log
        self._expected = expected  # number of servers in the routes, as far as it is known
        self._bootstrap = Bootstrap(server.node, server.store, expected(), identity.adopted)
        self._heard = 0  # number of words received
        self._reason = ""  # the last logged reason why the group cannot begin
        self._welcome = 0  # incarnation with which this server joins a running group
        self._is_joined = False
        self._late_ns: dict[Peer, int] = {}  # removed servers without streams that lack entries, since when
        self.group = 0  # 0: not open

    def open_stored(self, log: NodeLog, rng: Rng) -> bool:
        """Open the group if the log has it undamaged; return whether it was opened.

        If the log has lost the group, this server no longer knows how it voted, so it must join as a new member.
        """
        stored = next((each for each in log.groups.values() if each.number >= META_MIN), None)
        is_lost = stored is None and (self._identity.founded or log.lost_unknown)
        is_useless = stored is not None and (stored.is_damaged or _is_empty(stored))
        if (is_lost and self._identity.adopted is not None) or is_useless:
            self._become_another(stored, rng)
            return False
        if stored is None:
            return False
        self.group = stored.number
        self._consensus.open(self.group, stored.name, self._machine)
        return True

    def rejoin_steps(self, log: NodeLog, rng: Rng) -> Generator[Step, None, None]:
        """Join the group again whenever its log was dropped while this server runs; never ends."""
        while True:
            yield from self._waiters.until(lambda: self._machine.is_dropped)
            self._machine.is_dropped = False
            self._become_another(log.groups.get(self.group), rng)
            self.group, self._welcome, self._is_joined = 0, 0, False
            yield from self.found_steps()

    def _become_another(self, stored: StoredGroup | None, rng: Rng) -> None:
        """Prepare to join the group again as another member, since the log may have lost votes of this member."""
        self._identity.renew(rng)
        self._server = replace(self._server, store=self._identity.store)
        self._bootstrap = Bootstrap(
            self._server.node, self._server.store, self._expected(), self._identity.adopted
        )
        self._log.error(
            "The log of the cluster's metadata is lost or damaged: this server joins again as another member"
        )
        if stored is not None and not stored.is_damaged:
            self._consensus.remove(stored.number)  # it has not voted, so its peer may be used again

    def _open(self, membership: Membership, conf: Conf, incarnation: int = 1) -> None:
        self.group = META_MIN | membership.identity >> 1
        self._consensus.open(self.group, NAME, self._machine, conf, incarnation)

    # -- the first members -------------------------------------------------------------------------------------

    def found_steps(self) -> Generator[Step, None, None]:
        """Agree with the other servers on the first members and start the group, or join a running one."""
        said, has_heard = None, False
        while not self._machine.had_leader:
            self._bootstrap.expected = self._expected()
            self._do(self._bootstrap.step())
            word = self._word(), frozenset(self._way.online)
            if word != said or not has_heard:  # otherwise two servers would answer each other forever
                said = word
                self._speak()
            heard = self._heard
            has_heard = yield from self._waiters.until(
                lambda heard=heard: self._heard != heard or self._machine.had_leader,  # type: ignore[misc]
                SPEAK_NS,
            )
        self._identity.found()

    def _do(self, step: FirstStep) -> None:
        membership = step.membership
        if membership is None or step.do is Do.WAIT:
            self._report(step.reason)
        elif step.do is Do.ADOPT:
            self._identity.adopt(membership)
            self._bootstrap.adopt(membership)
        elif step.do is Do.START and self.group == 0:
            voters = [peer_id(node, 1) for node in membership.voters]
            learners = [peer_id(node, 1) for node in membership.learners]
            self._open(membership, Conf(voters, learners))
            self._log.info(f"The metadata of the cluster begins with {len(membership.members)} servers")
        elif step.do is Do.JOIN:
            self._join(membership)

    def _join(self, membership: Membership) -> None:
        """Join a running group, or ask its leader for an incarnation if the leader has not assigned one yet."""
        if self.group and not self._is_joined:
            self._consensus.remove(self.group)  # started here, but the other servers have a different group
            self.group = 0
        if self._welcome and self.group == 0:
            if self._identity.adopted is None:
                self._identity.adopt(membership)
            self._is_joined = True
            self._open(membership, Conf(), self._welcome)
        elif self.group == 0:
            self._report("the leader of the cluster to add this server")
            for node in sorted(self._way.online):
                self._way.tell(node, Description(self._server))

    def welcomed(self, incarnation: int) -> None:
        """Store the incarnation under which this server can join, as assigned by the leader."""
        self._welcome = incarnation
        self._heard += 1
        self._waiters.notify()

    def _report(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._log.info(f"The metadata of the cluster waits: {reason}")

    def _word(self) -> Word:
        adopted = self._identity.adopted
        is_running = self._machine.had_leader and adopted is not None
        return Word(self._server.node, self._identity.store, self._expected(), adopted, is_running)

    def _speak(self) -> None:
        for node in sorted(self._way.online):
            self._way.tell(node, Saying(self._word()))

    def hear(self, node: int, word: Word) -> None:
        """Handle a word of another server; answer it if this server has had a leader and the other has not."""
        if word.node != node:
            return
        self._bootstrap.hear(word)
        self._heard += 1
        if self._machine.had_leader and not word.is_running:
            self._way.tell(node, Saying(self._word()))
        self._waiters.notify()

    # -- servers -----------------------------------------------------------------------------------------------

    @property
    def _is_described(self) -> bool:
        known = self._machine.state.servers.get(self._server.node)
        return known is not None and _same(known, self._server)

    def describe_steps(self) -> Generator[Step, None, None]:
        """Send the description of this server to the leader whenever the metadata lacks it; never ends."""
        while True:
            yield from self._waiters.until(lambda: self._machine.leader and not self._is_described)
            if self._machine.leads:
                self.described(self._server)
            else:
                self._way.tell(self._machine.leader, Description(self._server))
            yield from self._waiters.until(lambda: self._is_described, DESCRIBE_NS)

    def described(self, server: Server) -> None:
        """If this server leads, propose a server's new description, or send a known server its incarnation."""
        removed = self._machine.state.removed.get(server.node)
        if not self._machine.leads or (removed is not None and removed.store == server.store):
            return
        known = self._machine.state.servers.get(server.node)
        if known is None or not _same(known, server):
            self._consensus.propose(self.group, encode(ServerDescribed(server)))
        elif server.node != self._server.node:
            self._way.tell(server.node, Welcome(known.incarnation))

    def follow_steps(self) -> Generator[Step, None, None]:
        """While this server leads, change the members of the group to match the known servers; never ends."""
        while True:
            yield from self._waiters.until(
                lambda: (
                    self._machine.leads
                    and (self._next_change() is not None or self._heir() != 0 or bool(self._kept()))
                )
            )
            heir = self._heir()
            if heir:
                with suppress(Refused):  # it no longer votes
                    self._consensus.transfer(self.group, heir)
                yield from self._waiters.until(lambda: not self._machine.leads, CHANGE_NS)
                continue
            change = self._next_change()
            if change is None:  # it is not known here which entries a removed server has received
                yield from self._waiters.until(
                    lambda: not self._machine.leads or self._next_change() is not None, CHANGE_NS
                )
                continue
            with suppress(Refused):  # another change is in progress
                peer = peer_id(change.peer.node, change.peer.incarnation)
                self._consensus.change(self.group, [(_CHANGES[change.move], peer)])
            yield from self._waiters.until(
                lambda change=change: not self._machine.leads or self._next_change() != change,  # type: ignore[misc]
                CHANGE_NS,
            )

    def _heir(self) -> int:
        """Return the number of the server that must lead in place of this removed one, or 0 if there is none."""
        removed = self._machine.state.removed
        if self._server.node not in removed:
            return 0
        replicas = self._consensus.status(self.group).replicas
        voters = [each for each in replicas if each.is_voter and each.node in self._way.online]
        heirs = [each for each in voters if each.node not in removed]
        return min(heirs, key=lambda each: each.lag or 0).node if heirs else 0

    def _next_change(self) -> MemberChange | None:
        status = self._consensus.status(self.group)
        peers = {Peer(each.node, incarnation_of(each.peer)): each for each in status.replicas}
        me = next((peer for peer in peers if peer.node == self._server.node), None)
        state = self._machine.state
        if me is None or (len(state.servers) < 2 and not state.removed):
            return None
        there = self._way.online | {me.node}
        current = {peer for peer, each in peers.items() if peer.node in there and (each.lag or 0) <= LAG_MAX}
        voters = frozenset(peer for peer, each in peers.items() if each.is_voter)
        members = Members(voters, frozenset(peers) - voters, me, current, self._kept())
        return next_change(members, self._described_servers(voters))

    def _kept(self) -> frozenset[Peer]:
        """Return the peers of removed servers that are online and may lack the entries about moves of their streams.

        Without these entries, the servers would continue to serve their streams.
        """
        state, now_ns = self._machine.state, self._waiters.now_ns
        kept: set[Peer] = set()
        late: dict[Peer, int] = {}
        for each in self._consensus.status(self.group).replicas if state.removed else ():
            peer = Peer(each.node, incarnation_of(each.peer))
            if each.node not in state.removed or each.node not in self._way.online:
                continue
            if each.node in state.load:
                kept.add(peer)
            elif each.lag:
                late[peer] = self._late_ns.get(peer, now_ns)
                if now_ns < late[peer] + KEEP_NS:
                    kept.add(peer)
        self._late_ns = late
        return frozenset(kept)

    def _described_servers(self, voters: frozenset[Peer]) -> Mapping[int, Server]:
        """Return the servers of the metadata, and voters that have not sent their descriptions yet."""
        state = self._machine.state
        unknown = {
            peer.node: replace(self._server, node=peer.node, incarnation=peer.incarnation)
            for peer in voters
            if peer.node not in state.servers and peer.node not in state.removed
        }
        return unknown | state.servers


def _is_empty(stored: StoredGroup) -> bool:
    """Return whether the log of a group has no entries and no voters, for example after it was dropped."""
    return not stored.conf.voters and stored.start == stored.last == 0


def _same(known: Server, server: Server) -> bool:
    """Return whether `known` and `server` are equal, apart from `incarnation` and `evacuating`."""
    return replace(known, incarnation=server.incarnation, evacuating=server.evacuating) == server
