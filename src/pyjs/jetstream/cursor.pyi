from typing import Protocol

from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream import Stream
from pyjs.jetstream.stream_consumer import StreamConsumer
from pyjs.store.store import StreamStore
from pyjs.subjects.transform import SubjectTransform

SOURCE_HASH: bytes

class CursorOwner(Protocol):
    def find_origin(self, cursor: Cursor) -> bool: ...
    def was_blocked(self, cursor: Cursor) -> None: ...
    def is_current(self, cursor: Cursor) -> None: ...

class Cursor(StreamConsumer):
    target: Stream
    origin: Stream | None
    mirrors: bool
    blocked: bool
    active_ns: int
    error: ApiError | None
    stored: int
    written: int
    kept: int
    def __init__(
        self,
        owner: CursorOwner,
        target: Stream,
        name: str,
        filters: tuple[bytes, ...],
        transforms: list[SubjectTransform | None],
        mirrors: bool,
    ) -> None: ...
    def describe(self, head: bytes, tail: bytes) -> None: ...
    def attach(self, origin: Stream, position: int, ident: bytes, copied_from: int = 0) -> None: ...
    def durable(self, origin: Stream | None, seq: int, error: Exception | None) -> None: ...
    def detach(self) -> None: ...
    def committed(self) -> bool: ...
    def lost(self) -> None: ...
    def lag(self) -> int: ...
    def pump(self) -> None: ...

def last_sources(store: StreamStore, above: int, wanted: set[bytes]) -> dict[bytes, tuple[int, bytes]]: ...
