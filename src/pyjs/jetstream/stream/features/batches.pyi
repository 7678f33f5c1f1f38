from collections.abc import Callable

from pyjs.base.timers import Timers
from pyjs.config.options import BatchLimits

ID_SIZE_MAX: int
STAGED_BYTES_MAX: int
COMMIT: bytes
LEVEL: bytes

def scan(headers: bytes) -> tuple[bytes, int, bytes | None, bool]: ...

class BatchUsage:
    count: int
    bytes: int
    bytes_max: int
    fast_count: int

class AtomicBatch:
    id: bytes
    def __init__(self, batch_id: bytes) -> None: ...
    def __len__(self) -> int: ...

class AtomicBatches:
    tell: Callable[[bytes, str], None]
    def __init__(
        self, limits: BatchLimits, usage: BatchUsage, timers: Timers, tell: Callable[[bytes, str], None]
    ) -> None: ...
    def drop_all(self) -> None: ...
