from collections.abc import Callable

from pyjs.base.timers import Timers
from pyjs.config.options import BatchLimits

LEVEL: bytes

def scan(headers: bytes) -> tuple[bytes, int, bytes | None, bool]: ...

class BatchUsage:
    count: int
    bytes: int
    at_once_max: int
    part_size: int

class AtomicBatch:
    id: bytes
    def __init__(self, batch_id: bytes) -> None: ...
    def __len__(self) -> int: ...

class AtomicBatches:
    tell: Callable[[bytes, str], None]
    def __init__(
        self, limits: BatchLimits, usage: BatchUsage, timers: Timers, tell: Callable[[bytes, str], None]
    ) -> None: ...
