from typing import Self

from pyjs.core.sink import Turn
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.store.store import StreamStore

class Evictions:
    purges: list[bytes]
    def __new__(cls, store: StreamStore, turn: Turn) -> Self: ...
    def lower(self, config: StreamConfig) -> None: ...
    def trim_subjects(self, max_per_subject: int) -> None: ...
