"""Replicas of this server that must return as new peers, because the log may have lost their votes or entries.

The server reports them to the leader of the metadata until the metadata gives them new incarnations. If the log may
have lost whole groups, this doubt ends when every replica of this server is in the log: by then, lost ones have
returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.consensus.engine import incarnation_of
from pyjs.jetstream.member.notes import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.waiters import Waiters

TELL_NS = NS_PER_S


class Losses:
    """The lost replicas of one server."""

    def __init__(
        self, node: int, machine: MetaMachine, waiters: Waiters, tell_leader: Callable[[Loss], None]
    ) -> None:
        self._node = node
        self._machine = machine
        self._waiters = waiters
        self._tell_leader = tell_leader
        self._found: dict[int, Assignment] = {}  # by group
        self.log: NodeLog | None = None  # set when it is recovered

    def add(self, stream: Assignment) -> None:
        """Add a replica that cannot be opened because the log may have lost it."""
        self._found[stream.group] = stream
        self._waiters.notify()

    def is_ahead(self, stream: Assignment) -> bool:
        """Return whether, after damage, the log has a newer incarnation of a replica than the metadata."""
        stored = None if self.log is None else self.log.groups.get(stream.group)
        return stored is not None and incarnation_of(stored.peer) > stream.incarnation_on(self._node)

    def tell_steps(self) -> Generator[Step, None, None]:
        """Report lost replicas to the leader of the metadata until they are replaced; never ends."""
        while True:
            yield from self._waiters.until(lambda: self._machine.leader and self._found)
            for stream in list(self._found.values()):
                if self._machine.state.stream(stream.account, stream.name) == stream:
                    name, revision = stream.name, stream.revision
                    self._tell_leader(Loss(stream.account, name, stream.group, revision, self._node))
                else:
                    del self._found[stream.group]
            yield from self._waiters.until(lambda: not self._found, TELL_NS)

    def doubt_steps(self, is_idle: Callable[[], bool]) -> Generator[Step, None, None]:
        """End the doubt of the log when it has every replica of this server and no stream has work left."""
        log = self.log
        if log is None or not log.lost_unknown:
            return
        yield from self._waiters.until(lambda: is_idle() and not self._found and self._are_known(log))
        log.end_doubt()

    def _are_known(self, log: NodeLog) -> bool:
        """Return whether the log has every replica that the metadata assigns to this server."""
        return all(
            stream.group in log.groups
            for stream in self._machine.state.streams()
            if stream.config.num_replicas > 1 and stream.incarnation_on(self._node)
        )
