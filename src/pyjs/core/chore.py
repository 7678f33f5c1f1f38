"""Work too long for one turn: an iterator that does a bounded step each time, and who it is done for.

A step yields None when it did enough for now, or a `Park`: a function that takes the chore and puts it back into
`Turn.chores` when it can go on. Until then it costs no turn anything.

`Gates` keeps work with one stream, or one consumer, in order although it is done in steps: changes have it alone,
reports share it, first come, first served. Work that fits in one step needs no gate while nobody is inside.

Knows nothing of streams: a gate has a name.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias, TypeVar

    from pyjs.core.fair_queue import Owner
    from pyjs.core.sink import Turn

    Park: TypeAlias = "Callable[[Chore], None]"
    Step: TypeAlias = "Park | None"
    Result = TypeVar("Result")


class Chore:
    """One piece of work in steps."""

    __slots__ = ("owner", "steps")

    def __init__(self, steps: Iterator[Step], owner: Owner) -> None:
        self.steps = steps
        self.owner = owner

    def go_on(self) -> bool:
        """Do a step; tell whether the next one can be done."""
        for park in self.steps:
            if park is None:
                return True
            park(self)
            break
        return False


class _Gate:
    """Who works with one stream, and who waits for it."""

    __slots__ = ("alone", "inside", "let_in", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.let_in = 0  # of those inside: they waited, and have not gone on yet
        self.alone = False  # the one inside changes the stream
        self.waiting: deque[tuple[Chore, bool]] = deque()

    def admits(self, alone: bool) -> bool:
        return self.inside == 0 or not (alone or self.alone)

    def admit(self, alone: bool) -> None:
        self.inside += 1
        self.alone = alone


class Gates:
    """The gates of one account; a name has one while somebody is inside."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._gates: dict[str, _Gate] = {}

    def is_busy(self, name: str) -> bool:
        """Return whether somebody is inside."""
        return name in self._gates

    def enter(self, name: str, alone: bool) -> Generator[Step, None, None]:
        """Wait until the stream called `name` is free, and enter; `leave` has to follow."""
        gate = self._gates.setdefault(name, _Gate())
        if gate.admits(alone) and not (gate.waiting or gate.let_in):
            gate.admit(alone)
            return
        yield lambda chore: gate.waiting.append((chore, alone))  # who lets it in admits it
        gate.let_in -= 1
        self._let_in(gate)

    def within(
        self, name: str, alone: bool, steps: Callable[[], Generator[Step, None, Result]]
    ) -> Generator[Step, None, Result]:
        """Do the steps inside the gate called `name`; returns what they return."""
        yield from self.enter(name, alone)
        try:
            return (yield from steps())
        finally:
            self.leave(name)

    def leave(self, name: str) -> None:
        """Let those in who waited."""
        gate = self._gates[name]
        gate.inside -= 1
        self._let_in(gate)
        if gate.inside == 0:
            del self._gates[name]

    def _let_in(self, gate: _Gate) -> None:
        """Admit those who waited longest; who comes now waits until they have gone on, or it would be before them."""
        while gate.waiting and gate.admits(gate.waiting[0][1]):
            chore, alone = gate.waiting.popleft()
            gate.admit(alone)
            gate.let_in += 1
            self._turn.chores.append(chore)
