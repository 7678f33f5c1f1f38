from collections.abc import Callable, Iterator
from typing import Literal, Protocol, overload, type_check_only

from pyjs.base.together import Together
from pyjs.core.chore import Chore, Step
from pyjs.core.job import Job

@type_check_only
class Agreeing(Protocol):
    def turn(self) -> None: ...

@type_check_only
class SyncWork(Protocol):
    together: Together | None
    def __call__(self) -> Exception | None: ...

@type_check_only
class Syncing(Protocol):
    @property
    def sync_always(self) -> bool: ...
    def begin_sync(self) -> SyncWork | None: ...
    def finish_sync(self, error: Exception | None) -> None: ...

@type_check_only
class Keeping(Protocol):
    def begin_upkeep(self) -> Callable[[], Exception | None] | None: ...
    def finish_upkeep(self, error: Exception | None) -> None: ...

class Turn:
    now: int
    skew: int
    crowded: bool
    input_left: int
    reports: bool
    news: bool
    last_number: int
    sessions: list[Sink]
    streams: list[Sink]
    consumers: list[Sink]
    consensus: list[Agreeing]
    expired: list[Sink]
    held: list[Sink]
    requests: list[Request]
    chores: list[Chore]
    faulted: list[tuple[object, Exception]]
    unsynced: list[Syncing]
    upkeep: list[Keeping]
    jobs: list[Job]
    finished: list[tuple[Job, Exception | None]]
    def begin(self, now: int, copies: int) -> None: ...
    def go_on(self, steps: Iterator[Step]) -> None: ...
    @overload
    def take(self, name: Literal["consensus"]) -> list[Agreeing]: ...
    @overload
    def take(self, name: Literal["expired"]) -> list[Sink]: ...
    @overload
    def take(self, name: Literal["requests"]) -> list[Request]: ...
    @overload
    def take(self, name: Literal["unsynced"]) -> list[Syncing]: ...
    @overload
    def take(self, name: Literal["upkeep"]) -> list[Keeping]: ...
    @overload
    def take(self, name: Literal["jobs"]) -> list[Job]: ...
    @overload
    def take(self, name: Literal["finished"]) -> list[tuple[Job, Exception | None]]: ...
    @overload
    def take(self, name: Literal["chores"]) -> list[Chore]: ...
    @overload
    def take(self, name: Literal["faulted"]) -> list[tuple[object, Exception]]: ...
    @property
    def idle(self) -> bool: ...

class Sink:
    def accepts(self, subject: bytes, queue: bytes) -> bool: ...

class RemoteSink(Sink): ...

class Request:
    handler: Callable[[Request], Iterator[Step] | None]
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    session: Sink | None
    is_routed: bool
    number: int
    def __init__(
        self,
        handler: Callable[[Request], Iterator[Step] | None],
        subject: bytes,
        reply: bytes = b"",
        headers: bytes = b"",
        payload: bytes = b"",
        session: Sink | None = None,
        is_routed: bool = False,
        number: int = 0,
    ) -> None: ...

class PySink(Sink):
    service: bytes | None
    handler: Callable[[Request], Iterator[Step] | None]
    admits: Callable[[Request], bool] | None
    def __init__(self, turn: Turn, handler: Callable[[Request], Iterator[Step] | None]) -> None: ...
