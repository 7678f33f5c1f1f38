from typing import Protocol, type_check_only

from pyjs.base.clock import Clock
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.config.options import JetStreamOptions
from pyjs.core.sink import Sink
from pyjs.jetstream.manage.expiry import Expiry
from pyjs.jetstream.stream.features.batches import BatchUsage
from pyjs.jetstream.stream.features.scheduling import Scheduling
from pyjs.jetstream.stream.stream import Stream

@type_check_only
class Server(Protocol):
    options: JetStreamOptions
    max_payload: int
    timers: Timers
    clock: Clock
    rng: Rng
    batches: BatchUsage

class SpecialPublishes(Sink):
    scheduling: Scheduling
    def __init__(self, stream: Stream, server: Server, timer: Expiry) -> None: ...
    def finish(self) -> None: ...
    def drop(self, error: Exception) -> None: ...
    def drop_disabled(self) -> None: ...
    def lost(self, kept_seq: int) -> None: ...
    def close(self) -> None: ...
