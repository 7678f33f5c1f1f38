"""The metadata group of one server: found or opened again, and led.

A server with a log opens the group that is in it. Any other one finds the first members by the rules of
jetstream/cluster/bootstrap, with words to all servers that it is connected to. The group's number has the digest of
its first members, so that votes of different groups never mix.

Each server describes itself to the leader until the metadata says what it is. The leader lets the group follow the
servers, one change at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus.engine import Conf, peer_id
from pyjs.jetstream.cluster.bootstrap import Bootstrap, Do, Word
from pyjs.jetstream.cluster.entries import ServerDescribed, encode
from pyjs.jetstream.replication.notes import Description, Saying

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.base.log import Log
    from pyjs.consensus.consensus import Consensus
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.bootstrap import Membership
    from pyjs.jetstream.cluster.servers import Server
    from pyjs.jetstream.replication.identity import StoreIdentity
    from pyjs.jetstream.replication.meta_machine import MetaMachine
    from pyjs.jetstream.replication.notes import Note
    from pyjs.jetstream.replication.waiters import Waiters

META_MIN = 1 << 63  # groups of streams have lower numbers
NAME = "META"
SPEAK_NS = 250 * NS_PER_MS
DESCRIBE_NS = NS_PER_S


class Way(Protocol):
    """What the group needs of its server."""

    online: set[int]

    def tell(self, node: int, note: Note) -> None:
        """Send a note to another server."""


class MetaGroup:
    """The group on one server."""

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
        self._server = server  # as this server describes itself
        self._way = way
        self._identity = identity
        self._consensus = consensus
        self._machine = machine
        self._waiters = waiters
        self._log = log
        self._expected = expected  # how many servers the routes name, as far as that is known
        self._bootstrap = Bootstrap(server.node, identity.store, expected(), identity.adopted)
        self._heard = 0  # words
        self._reason = ""  # why the group cannot begin, as logged
        self.group = 0  # 0: not open

    def open_stored(self, log: NodeLog) -> bool:
        """Open the group that the log has; return whether there is one."""
        stored = next((each for each in log.groups.values() if each.number >= META_MIN), None)
        if stored is None:
            return False
        self.group = stored.number
        self._consensus.open(self.group, stored.name, self._machine)
        return True

    def _open(self, membership: Membership) -> None:
        """Found the group with its first members."""
        self.group = META_MIN | membership.identity >> 1
        voters = [peer_id(node, 1) for node in membership.voters]
        learners = [peer_id(node, 1) for node in membership.learners]
        self._consensus.open(self.group, NAME, self._machine, Conf(voters, learners))
        self._log.info(f"The metadata of the cluster begins with {len(membership.members)} servers")

    # -- the first members -------------------------------------------------------------------------------------

    def found_steps(self) -> Generator[Step, None, None]:
        """Find the first members and found the group."""
        while self.group == 0:
            self._bootstrap.expected = self._expected()
            step = self._bootstrap.step()
            if step.membership is not None and step.do is Do.ADOPT:
                self._identity.adopt(step.membership)
                self._bootstrap.adopt(step.membership)
            elif step.membership is not None and step.do is Do.START:
                self._open(step.membership)
            else:
                self._report(step.reason or "this server is not among the first members of the cluster")
            self._speak()
            heard = self._heard
            yield from self._waiters.until(lambda heard=heard: self._heard != heard, SPEAK_NS)  # type: ignore[misc]

    def _report(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._log.info(f"The metadata of the cluster waits: {reason}")

    def _word(self) -> Word:
        word = self._bootstrap.word
        return replace(word, is_running=self._machine.had_leader and word.adopted is not None)

    def _speak(self) -> None:
        for node in sorted(self._way.online):
            self._way.tell(node, Saying(self._word()))

    def hear(self, node: int, word: Word) -> None:
        """Take the word of another server; answer it if this one needs no more words itself."""
        if word.node != node:
            return
        self._bootstrap.hear(word)
        self._heard += 1
        if self.group and not word.is_running:
            self._way.tell(node, Saying(self._word()))
        self._waiters.notify()

    # -- servers -----------------------------------------------------------------------------------------------

    @property
    def _is_described(self) -> bool:
        known = self._machine.state.servers.get(self._server.node)
        return known is not None and _same(known, self._server)

    def describe_steps(self) -> Generator[Step, None, None]:
        """Say what this server is until the metadata has it, for ever."""
        while True:
            yield from self._waiters.until(lambda: self._machine.leader and not self._is_described)
            if self._machine.leads:
                self.described(self._server)
            else:
                self._way.tell(self._machine.leader, Description(self._server))
            yield from self._waiters.until(lambda: self._is_described, DESCRIBE_NS)

    def described(self, server: Server) -> None:
        """Propose what a server says of itself, if that is new; on the leader."""
        known = self._machine.state.servers.get(server.node)
        if self._machine.leads and (known is None or not _same(known, server)):
            self._consensus.propose(self.group, encode(ServerDescribed(server)))


def _same(known: Server, server: Server) -> bool:
    """Return whether the metadata says of a server what it says of itself."""
    return replace(known, incarnation=server.incarnation, evacuating=server.evacuating) == server
