from pyjs.base.clock import Clock
from pyjs.base.timers import Timers
from pyjs.core.faults import Faults
from pyjs.core.lane import Shares
from pyjs.core.sink import Turn

class Scheduler:
    has_work: bool
    _turns: int
    def __init__(
        self, state: Turn, timers: Timers, clock: Clock, faults: Faults, shares: Shares | None = None
    ) -> None: ...
    def turn(self, now_ns: int) -> None: ...
    def relieve(self, now_ns: int) -> None: ...
