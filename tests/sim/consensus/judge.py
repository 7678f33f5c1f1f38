"""The invariants that must hold at every time: all reports about an index must agree with the first report."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass

_STATE = struct.Struct("<QQQ")


class Violation(AssertionError):
    """An invariant was violated."""


@dataclass(frozen=True)
class State:
    """The state of a machine: the number of its entries, their digest, and the time of the last entry."""

    count: int = 0
    digest: int = 0
    time_ns: int = 0

    def then(self, time_ns: int, payload: bytes) -> State:
        """Return the state after one more entry."""
        return State(self.count + 1, zlib.crc32(payload, self.digest), time_ns)

    def packed(self, spare: int = 0) -> bytes:
        """Return the state as a snapshot with `spare` additional bytes, so that it has several parts."""
        return _STATE.pack(self.count, self.digest, self.time_ns) + bytes(self.digest % 200 + spare)

    @classmethod
    def unpacked(cls, data: bytes) -> State:
        """Return the state in a snapshot."""
        return cls(*_STATE.unpack_from(data))


class Judge:
    """The history of each group."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], int] = {}  # (group, term) -> node
        self.truth: dict[
            tuple[int, int], tuple[int, bytes, State]
        ] = {}  # (group, index) -> term, payload, state
        self.now = 0  # the current step
        self.first: dict[tuple[int, int], int] = {}  # time at which an entry of `truth` was first applied
        self.states: dict[int, set[State]] = {}
        self.known: Counter[int] = Counter()  # by group: number of entries acknowledged to a client
        self.acked: dict[int, list[tuple[int, bytes]]] = {}
        self.outcomes: Counter[bytes] = Counter()  # number of outcomes, by payload of a proposal
        self.counts: Counter[str] = Counter()
        self.violation = ""  # the first violation

    def fail(self, text: str) -> None:
        """Record a violation, and raise it; it stays recorded if a guard of a machine catches the exception."""
        self.violation = self.violation or text
        raise Violation(text)

    def leads(self, node: int, group: int, term: int) -> None:
        """Check that a leader is the only one of its term."""
        if (group, term) not in self.leaders:
            self.counts["leaders"] += 1
        first = self.leaders.setdefault((group, term), node)
        if first != node:
            self.fail(f"group {group}: nodes {first} and {node} lead in term {term}")

    def applied(self, node: int, group: int, index: int, term: int, payload: bytes, state: State) -> None:
        """Check an applied entry."""
        claim = (term, payload, state)
        first = self.truth.setdefault((group, index), claim)
        self.first.setdefault((group, index), self.now)
        if first != claim:
            self.fail(f"group {group}: index {index} was {first}, node {node} has {claim}")
        self.states.setdefault(group, {State()}).add(state)
        self.counts["applied"] += 1

    def installed(self, node: int, group: int, state: State) -> None:
        """Check the state of a snapshot."""
        self.counts["installed"] += 1
        if state not in self.states.setdefault(group, {State()}):
            self.fail(f"group {group}: node {node} installed {state}, which nobody had")

    def forget(self, since: int = -1) -> None:
        """Allow the loss of entries that were applied after step `since`, because the power failed on all nodes."""
        for key in [key for key, at in self.first.items() if at > since]:
            del self.truth[key], self.first[key]
        for group, acked in self.acked.items():
            self.acked[group] = [each for each in acked if (group, each[0]) in self.truth]
        self.known.clear()
        self.outcomes.clear()
        for (group, _), (*_, state) in self.truth.items():
            self.known[group] = max(self.known[group], state.count)
        self.counts["forgotten"] += 1

    def acknowledged(self, group: int, index: int, payload: bytes, state: State) -> None:
        """Record the answer to a client."""
        self.acked.setdefault(group, []).append((index, payload))
        self.known[group] = max(self.known[group], state.count)
        self.ended(payload)
        self.counts["acked"] += 1

    def ended(self, payload: bytes) -> None:
        """Check that a proposal has only one outcome."""
        self.outcomes[payload] += 1
        if self.outcomes[payload] > 1:
            self.fail(f"proposal {payload!r} has two outcomes")

    def read(self, node: int, group: int, floor: int, state: State) -> None:
        """Check the result of a read."""
        self.counts["reads"] += 1
        if state.count < floor:
            self.fail(f"group {group}: a read on node {node} found {state.count} entries, {floor} were known")
        if state not in self.states.setdefault(group, {State()}):
            self.fail(f"group {group}: a read on node {node} found {state}, which is not committed")
        self.known[group] = max(self.known[group], state.count)

    def check_end(self, group: int, states: dict[int, State]) -> None:
        """Check that all nodes agree, and that no acknowledged entry is lost."""
        if len(set(states.values())) != 1:
            self.fail(f"group {group}: the nodes end with {states}")
        end = next(iter(states.values()))
        for index, payload in self.acked.get(group, ()):
            _, found, state = self.truth[group, index]
            if found != payload or state.count > end.count:
                self.fail(f"group {group}: {payload!r} was acknowledged at {index} and is lost")
