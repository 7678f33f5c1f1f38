"""Chores: work that is too long for one turn. A chore has an iterator of bounded steps, and an owner.

A step yields None to continue in a later turn. To wait, it yields a `Park`: a function that stores the chore, and
puts the chore back into `Turn.chores` as soon as the chore can continue. A parked chore uses no time.

`Gates` order the chores of one stream or consumer: a chore that changes the object has exclusive access, and chores
that only read it may run together. The chores of one connection are admitted in order, and connections take turns.
Work that takes only one step need not enter the gate while no chore is inside.

This module knows nothing of streams: a gate is identified by a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias, TypeVar

    from pyjs.core.fair_queue import Owner
    from pyjs.core.sink import Turn

    Park: TypeAlias = "Callable[[Chore], None]"
    Step: TypeAlias = "Park | None"
    Result = TypeVar("Result")


class Chore:
    """Work that runs in steps, and its owner."""

    __slots__ = ("owner", "steps")

    def __init__(self, steps: Iterator[Step], owner: Owner) -> None:
        self.steps = steps
        self.owner = owner

    def go_on(self) -> bool:
        """Run a step; return False if the chore has ended or is parked."""
        for park in self.steps:
            if park is None:
                return True
            park(self)
            break
        return False


class _Gate:
    """The chores inside one gate, and the chores that wait to enter it."""

    __slots__ = ("alone", "inside", "let_in", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.let_in = 0  # number of chores admitted after waiting that have not continued yet
        self.alone = False  # the chore that is inside has exclusive access
        self.waiting: FairQueue[tuple[Chore, bool]] = FairQueue()  # with whether it needs exclusive access

    def admits(self, alone: bool) -> bool:
        return self.inside == 0 or not (alone or self.alone)

    def admit(self, alone: bool) -> None:
        self.inside += 1
        self.alone = alone


class Gates:
    """The gates of one account; a gate exists while a chore is inside."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._gates: dict[str, _Gate] = {}

    def is_busy(self, name: str) -> bool:
        """Return whether a chore is inside the gate `name`."""
        return name in self._gates

    def enter(self, name: str, alone: bool) -> Generator[Step, None, None]:
        """Wait until the gate `name` admits the chore, with exclusive access if `alone` is true.

        The caller must call `leave` afterwards.
        """
        gate = self._gates.setdefault(name, _Gate())
        if gate.admits(alone) and not (gate.waiting.count or gate.let_in):
            gate.admit(alone)
            return
        # The chore is parked; _let_in admits it.
        yield lambda chore: gate.waiting.add(chore.owner, (chore, alone))
        gate.let_in -= 1
        self._let_in(gate)

    def within(
        self, name: str, alone: bool, steps: Callable[[], Generator[Step, None, Result]]
    ) -> Generator[Step, None, Result]:
        """Run the steps inside the gate `name`, and return their result."""
        yield from self.enter(name, alone)
        try:
            return (yield from steps())
        finally:
            self.leave(name)

    def leave(self, name: str) -> None:
        """Leave the gate, and admit waiting chores."""
        gate = self._gates[name]
        gate.inside -= 1
        self._let_in(gate)
        if gate.inside == 0:
            del self._gates[name]

    def _let_in(self, gate: _Gate) -> None:
        """Admit waiting chores in order, up to the first that must still wait.

        Each admitted chore continues in a later turn.
        """
        while (first := gate.waiting.first()) is not None and gate.admits(first[1]):
            _, (chore, alone) = gate.waiting.take()
            gate.admit(alone)
            gate.let_in += 1
            self._turn.chores.append(chore)
