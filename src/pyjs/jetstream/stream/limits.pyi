from typing import Self

from pyjs.jetstream.config.stream import StreamConfig

class StreamLimits:
    def read(self, config: StreamConfig) -> None: ...

class Usage:
    used: int
    reserved: int
    max: int
    def __new__(cls, limit: int = -1) -> Self: ...

class UsageShare:
    def __new__(cls, account: Usage, server: Usage) -> Self: ...
