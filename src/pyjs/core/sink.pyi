from collections.abc import Callable

SOURCE_HASH: bytes

class Turn:
    now: int
    pressure: bool
    sessions: list[Sink]
    streams: list[Sink]
    consumers: list[Sink]
    requests: list[Request]
    unsynced: list[Sink]
    def take(self, name: str) -> list[object]: ...
    @property
    def idle(self) -> bool: ...

class Sink:
    def accepts(self, subject: bytes) -> bool: ...

class Request:
    handler: Callable[[Request], None]
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    session: Sink | None
    def __init__(
        self,
        handler: Callable[[Request], None],
        subject: bytes,
        reply: bytes = b"",
        headers: bytes = b"",
        payload: bytes = b"",
        session: Sink | None = None,
    ) -> None: ...

class PySink(Sink):
    handler: Callable[[Request], None]
    def __init__(self, turn: Turn, handler: Callable[[Request], None]) -> None: ...
