from pyjs.base.clock import Clock
from pyjs.base.timers import Timers
from pyjs.core.faults import Faults
from pyjs.core.lane import Share
from pyjs.core.sink import Turn
from pyjs.subjects.routes import RouteCache

class Scheduler:
    def __init__(
        self,
        state: Turn,
        timers: Timers,
        clock: Clock,
        faults: Faults,
        shares: tuple[Share, ...] | None = None,
    ) -> None: ...
    @property
    def has_work(self) -> bool: ...
    def turn(self, now_ns: int) -> None: ...
    def relieve(self, now_ns: int) -> None: ...

class Turns:
    scheduler: Scheduler
    routes: RouteCache
    def begin_turns(self, scheduler: Scheduler, routes: RouteCache) -> None: ...
    def turn(self, now_ns: int) -> None: ...
    def relieve(self, now_ns: int) -> None: ...
    @property
    def has_work(self) -> bool: ...
