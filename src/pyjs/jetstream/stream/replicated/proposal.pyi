from collections.abc import Callable

from pyjs.core.chore import Chore
from pyjs.core.sink import Turn

class Outcome:
    settled: bool
    result: object
    error: Exception | None
    def __init__(self, turn: Turn) -> None: ...
    def settle(self, result: object, error: Exception | None = None) -> None: ...
    def park(self, chore: Chore) -> None: ...

class Proposal:
    size: int
    outcome: object
    calls: list[Callable[[None], None]]
    changed: set[str]
    is_patient: bool
