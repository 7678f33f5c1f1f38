"""The invariants that must always hold. The judge receives the reports of nodes, not the state of the engine."""

from __future__ import annotations

from typing import TypeAlias

from pyjs_raft import Groups

State: TypeAlias = tuple[int, int]
Entry: TypeAlias = tuple[int, int, bytes]


class Violation(AssertionError):
    """An invariant was violated."""


class Judge:
    """The history of each group: the first report that an entry is committed counts, and later ones must agree."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], int] = {}  # (group, term) -> node
        self.truth: dict[
            tuple[int, int], tuple[int, int, bytes, State]
        ] = {}  # (group, index) -> entry, and the state after it
        self.last: dict[int, int] = {}  # the last committed index of each group
        self.committed_in: dict[int, int] = {}  # the last term in which a node reported a committed entry
        self.acknowledged: dict[int, int] = {}  # the last index that was acknowledged to a client
        self.pending: dict[tuple[int, int, int], int] = {}  # (group, index, term) -> node that proposed it
        self.bulk: dict[tuple[int, int, int], State] = {}  # states that nodes offer as snapshots
        self.arrived: set[tuple[int, int]] = (
            set()
        )  # group and peer of snapshots whose end was not reported to their senders yet
        self.damaged = 0
        self.sleeps = 0
        self.lost_asleep = 0  # number of leaders that were lost while their group was asleep
        self.replaced = 0
        self.reads = 0
        self.commit_count = 0
        self.installs = 0

    def fail(self, text: str) -> None:
        """Raise Violation."""
        raise Violation(text)

    def leads(self, group: int, term: int, node: int, engine: Groups) -> None:
        """Check that a new leader is the only one of its term, and that its log has every committed entry."""
        first = self.leaders.setdefault((group, term), node)
        if first != node:
            self.fail(f"group {group}: nodes {first} and {node} lead in term {term}")
        last = self.last.get(group, 0)
        if self.committed_in.get(group, term) >= term:
            return  # a later leader has committed this entry, so this report is late
        if last and engine.term_at(group, last) != self.truth[group, last][0]:
            status = engine.status(group)
            if status.start < last:
                found = engine.term_at(group, last)
                self.fail(
                    f"group {group}: leader {node} of term {term} lacks index {last}, it has term {found}"
                )

    def commits(self, node: int, group: int, index: int, entry: Entry, state: State, engine: Groups) -> None:
        """Check a committed entry."""
        claim = (*entry, state)
        if (group, index) not in self.truth:
            self.truth[group, index] = claim
            self.committed_in[group] = max(self.committed_in.get(group, 0), engine.status(group).term)
        first = self.truth[group, index]
        if first != claim:
            self.fail(f"group {group}: index {index} was {first}, node {node} has {claim}")
        self.commit_count += 1
        self.last[group] = max(self.last.get(group, 0), index)
        if self.pending.get((group, index, entry[0])) == node:
            del self.pending[group, index, entry[0]]
            self.acknowledged[group] = max(self.acknowledged.get(group, 0), index)

    def installed(self, node: int, group: int, index: int, state: State) -> None:
        """Check the state of a snapshot."""
        self.installs += 1
        if (group, index) in self.truth and self.truth[group, index][3] != state:
            self.fail(f"group {group}: node {node} installed {state} at {index}")

    def proposed(self, node: int, group: int, index: int, term: int) -> None:
        """Record a proposal that its node will acknowledge."""
        self.pending[group, index, term] = node

    def floor(self, group: int) -> int:
        """Return the minimum index that a read which begins now must return."""
        return self.acknowledged.get(group, 0)

    def read(self, group: int, floor: int, index: int, state: State) -> None:
        """Check the result of a read; later reads must not return less."""
        self.reads += 1
        if index < floor:
            self.fail(f"group {group}: a read found index {index}, {floor} was known before it began")
        if (group, index) in self.truth and self.truth[group, index][3] != state:
            self.fail(f"group {group}: a read found {state} at index {index}")
        if index > self.last.get(group, 1):
            self.fail(f"group {group}: a read found index {index}, {self.last.get(group, 1)} is committed")
        self.acknowledged[group] = max(self.floor(group), index)
