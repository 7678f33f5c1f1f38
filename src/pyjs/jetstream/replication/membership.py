"""Adapts the members of a stream's group to the metadata; the group's leader proposes the changes, one at a time.

A new replica is a learner until it has all messages and nearly the whole log; then it becomes a voter. Replicas
that the metadata no longer lists are removed only after that. A majority of the remaining replicas must then have all
messages, since a voter that was unreachable may still be copying. A leader that must be removed transfers its
leadership first. A replica to be removed continues until it sees the removal in its own log, or learns of it from the
leader.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus.engine import Change, RaftError, node_of, peer_id
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import ALL, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Sequence
    from typing import TypeAlias

    from pyjs.consensus.consensus import Consensus
    from pyjs.consensus.status import GroupStatus
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]
    Changes: TypeAlias = list[tuple[int, int]]

PAUSE_NS = 50 * NS_PER_MS
WARN_NS = 5 * NS_PER_S  # time after which a waiting change is reported
LAG_MAX = 4  # maximum number of entries that a new voter may lack; publishers wait until it has them


class Machine(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    js: JetStream
    stream: Stream
    assignment: Assignment
    leads: bool
    waits: str  # the reason why a change of the members waits; "": it does not wait, or not for long
    poll: Answer
    leaving: Answer

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""


def regroup_steps(
    machine: Machine,
    consensus: Consensus,
    node: int,
    silent: Container[int],
    resign: Callable[[int], Steps],
) -> Steps:
    """Change the members of the group until they match the metadata, or this node no longer leads.

    `silent` contains the nodes that do not respond. `resign` transfers the leadership to another node.
    """
    watch = _Watch(machine)
    while machine.leads:
        with suppress(KeyError, RaftError):  # the group is closed, or another change is in progress
            found = consensus.status(machine.assignment.group)
            changes = yield from _next_changes(machine, found, node, silent)
            if changes is None:
                break
            if any(change == Change.REMOVE and node_of(peer) == node for change, peer in changes):
                heir = _heir(machine.assignment, found, node, silent)
                if heir:
                    yield from resign(heir)
            elif changes:
                consensus.change(machine.assignment.group, changes)
            watch.look(found)
        yield from machine.poll.pause(PAUSE_NS)
    machine.waits = ""


class _Watch:
    """A watch that warns if replicas that must be removed remain in the group for longer than WARN_NS."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._since: tuple[int, set[int]] | None = None  # start of the wait, and the nodes that remain

    def look(self, found: GroupStatus) -> None:
        """Write one warning if voters that must be removed have remained for WARN_NS although no voter is missing."""
        machine, here = self._machine, {each.peer for each in found.replicas if each.is_voter}
        wanted, now_ns = _wanted(machine.assignment), machine.stream.turn.now
        if here <= wanted or not wanted <= here:
            self._since, machine.waits = None, ""
        elif self._since is None or self._since[1] != wanted:
            self._since = now_ns, wanted
        elif now_ns - self._since[0] > WARN_NS and not machine.waits:
            machine.waits = (
                "replicas to remove stay until a majority of the others answers and has all messages"
            )
            machine.js.shared.log.warn(f"{machine.stream}: {machine.waits}")


def is_settled(assignment: Assignment, found: GroupStatus) -> bool:
    """Return whether the members of a group are exactly the replicas in the metadata, all of them voters."""
    return {each.peer for each in found.replicas if each.is_voter} == _wanted(assignment) and all(
        each.is_voter for each in found.replicas
    )


def _wanted(assignment: Assignment) -> set[int]:
    return {peer_id(each.node, each.incarnation) for each in assignment.replicas}


def _next_changes(
    machine: Machine, found: GroupStatus, node: int, silent: Container[int]
) -> Generator[Step, None, Changes | None]:
    """Return the next changes of the members, or None if the group matches the metadata; [] means to wait."""
    if is_settled(machine.assignment, found):
        return None
    wanted = _wanted(machine.assignment)
    here = {each.peer for each in found.replicas}
    missing = sorted(wanted - here)
    if missing:
        return [(Change.ADD_LEARNER, peer) for peer in missing]
    learners = [each for each in found.replicas if each.peer in wanted and not each.is_voter]
    if learners:
        ready: Changes = []
        for each in learners:
            if (each.lag or 0) <= LAG_MAX and (yield from _is_ready(machine, each.node)):
                ready.append((Change.ADD_VOTER, each.peer))
        return ready
    if (yield from _are_ready(machine, sorted(node_of(peer) for peer in wanted), node, silent)):
        return [(Change.REMOVE, peer) for peer in sorted(here - wanted)]
    return []


def _are_ready(
    machine: Machine, nodes: Sequence[int], node: int, silent: Container[int]
) -> Generator[Step, None, bool]:
    """Return whether a majority of the replicas on `nodes` has all messages; the leader on `node` has them."""
    ready = int(node in nodes)
    for other in nodes:
        if 2 * ready > len(nodes):
            break
        if other != node and other not in silent:
            ready += yield from _is_ready(machine, other)
    return 2 * ready > len(nodes)


def _is_ready(machine: Machine, node: int) -> Generator[Step, None, bool]:
    """Return whether the replica on a node answers that it has all messages."""
    found = yield from machine.poll.steps(partial(_ask, machine, node))
    return found is not None and found[0] is Kind.PART


def _ask(machine: Machine, node: int, number: int) -> None:
    """Ask another replica whether it has all messages."""
    machine.send(node, copy_batch.ask(machine.assignment.group, number, ALL))


def _heir(assignment: Assignment, found: GroupStatus, node: int, silent: Container[int]) -> int:
    """Return the node that should lead in place of `node`, or 0 if no other wanted voter responds."""
    wanted = _wanted(assignment)
    heirs = [
        (each.lag or 0, each.node)
        for each in found.replicas
        if each.is_voter and each.peer in wanted and each.node != node and each.node not in silent
    ]
    return min(heirs)[1] if heirs else 0


def leave_steps(
    machine: Machine, consensus: Consensus, node: int, wanted: Callable[[], Assignment | None]
) -> Steps:
    """Wait until the group has removed the replica on this node, or `wanted` returns None.

    `wanted` returns the current assignment of the stream, or None if there is nothing to wait for.
    """
    group = machine.assignment.group
    at = 0
    while (current := wanted()) is not None:
        machine.assignment = current
        with suppress(KeyError, RaftError):
            found = consensus.status(group)
            if found.replicas and node not in {each.node for each in found.replicas}:
                return
        others = machine.assignment.nodes
        asked = others[at % len(others)]
        at += 1
        answer = yield from machine.leaving.steps(partial(_ask, machine, asked))
        if answer is not None and answer[0] is Kind.GONE:
            return
        yield from machine.leaving.pause(PAUSE_NS)
