"""Replicas of this server that must return as new peers, because the log may have lost their votes or entries.

The server reports them to the leader of the metadata until the metadata gives them new incarnations. It also reports
groups that are no longer needed, and whether a stream from an archive could be opened. If the log may have lost whole
groups, it is in doubt until every replica of this server is in the log: by then, lost replicas have returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.consensus.engine import incarnation_of
from pyjs.jetstream.member.notes import Ended, Loss, Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.waiters import Waiters

TELL_NS = NS_PER_S


class Losses:
    """The lost replicas of one server, and its other reports to the leader of the metadata."""

    def __init__(
        self,
        node: int,
        machine: MetaMachine,
        waiters: Waiters,
        tell_leader: Callable[[Loss | Ended | Opened], None],
    ) -> None:
        self._node = node
        self._machine = machine
        self._waiters = waiters
        self._tell_leader = tell_leader
        self._found: dict[int, Assignment] = {}  # lost replicas, by group
        self._ended: dict[int, Assignment] = {}  # streams that no longer need their groups
        self._opened: dict[int, Opened] = {}  # streams that this server built, and whether they are open
        self.log: NodeLog | None = None  # set when the log is recovered

    def add(self, stream: Assignment) -> None:
        """Report that the log may have lost votes or entries of this server's replica of a stream."""
        self._found[stream.group] = stream
        self._waiters.notify()

    def end_group(self, stream: Assignment) -> None:
        """Report that a stream no longer needs its group, whose only member is the replica on this server."""
        self._ended[stream.group] = stream
        self._waiters.notify()

    def opened(self, stream: Assignment, *, is_there: bool) -> None:
        """Report whether a stream that this server built from an archive is open."""
        self._opened[stream.group] = Opened(stream.account, stream.name, stream.group, is_there)
        self._waiters.notify()

    def is_ahead(self, stream: Assignment) -> bool:
        """Return whether the log has a newer incarnation of this server's replica than the metadata has."""
        stored = None if self.log is None else self.log.groups.get(stream.group)
        return stored is not None and incarnation_of(stored.peer) > stream.incarnation_on(self._node)

    def tell_steps(self) -> Generator[Step, None, None]:
        """Send each report to the metadata leader repeatedly until the metadata reflects the report; never ends."""
        while True:
            yield from self._waiters.until(lambda: self._machine.leader and self._all)
            for stream in self._present(self._found):
                place = stream.account, stream.name, stream.group, stream.revision
                self._tell_leader(Loss(*place, self._node))
            for stream in self._present(self._ended):
                self._tell_leader(Ended(stream.account, stream.name, stream.group, stream.revision))
            for group, note in list(self._opened.items()):
                found = self._machine.state.stream(note.account, note.stream)
                if found is None or found.group != group or not found.is_built:
                    del self._opened[group]
                else:
                    self._tell_leader(note)
            told = self._all
            yield from self._waiters.until(lambda told=told: self._is_news(told), TELL_NS)  # type: ignore[misc]

    @property
    def _all(self) -> dict[int, Assignment | Opened]:
        """The reports to send, by group."""
        return {**self._found, **self._ended, **self._opened}

    def _is_news(self, told: dict[int, Assignment | Opened]) -> bool:
        """Return whether there is a report that `told` does not include, or no report is left."""
        now = self._all
        return not now or any(told.get(group) != each for group, each in now.items())

    def _present(self, streams: dict[int, Assignment]) -> list[Assignment]:
        """Remove from `streams` those that the metadata has changed since they were added, and return the others."""
        for group, stream in list(streams.items()):
            if self._machine.state.stream(stream.account, stream.name) != stream:
                del streams[group]
        return list(streams.values())

    def doubt_steps(self, is_idle: Callable[[], bool]) -> Generator[Step, None, None]:
        """Wait until the log has every replica of this server and no stream has work left; then end the doubt."""
        log = self.log
        if log is None or not log.lost_unknown:
            return
        yield from self._waiters.until(lambda: is_idle() and not self._found and self._are_known(log))
        log.end_doubt()

    def _are_known(self, log: NodeLog) -> bool:
        """Return whether the log has the group of every replicated stream that is assigned to this server."""
        return all(
            stream.group in log.groups
            for stream in self._machine.state.streams()
            if stream.config.num_replicas > 1 and stream.incarnation_on(self._node)
        )
