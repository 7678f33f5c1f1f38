import os as os
from typing import Final

from pyjs.server.driver import Driver

SPIN_NS: Final = 50_000
SHORT_NS: Final = 150_000
CREDIT_MAX: Final = 32
CREDIT_PAID: Final = 3
WAITS_MAX: Final = 64

class Spin:
    _credit: int
    _looking: bool
    def __init__(self, driver: Driver, spin_ns: int = 50_000) -> None: ...
    def after_turn(self) -> None: ...

def preemptions() -> int: ...
def pays() -> bool: ...
