from collections.abc import Callable

from pyjs.core.sink import Sink
from pyjs.jetstream.consumer_config import ConsumerConfig

SOURCE_HASH: bytes

class StreamConsumer(Sink):
    name: str
    config: ConsumerConfig
    filters: tuple[bytes, ...]
    settled: list[int]
    settle: Callable[[], None] | None
    wait: Callable[[], None] | None
    def __init__(self, name: str, filters: tuple[bytes, ...] = ()) -> None: ...
    def wake(self, seq: int) -> None: ...
    def needs(self, seq: int) -> bool: ...
    def dropped(self, seq: int) -> None: ...
    def on_purge(self, first_seq: int) -> None: ...
    def stop(self, reason: str) -> None: ...
