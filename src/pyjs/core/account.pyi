from collections.abc import Callable, Iterator

from pyjs.config.options import TraceDest
from pyjs.core.chore import Step
from pyjs.core.sink import Request, Sink, Turn
from pyjs.subjects.mappings import Mappings
from pyjs.subjects.routes import RouteCache
from pyjs.subjects.sublist import Sublist, Subscription

class Account:
    name: str
    tag: str
    subs: Sublist
    turn: Turn
    jetstream: object
    api_prefix: bytes
    mappings: Mappings | None
    exchange: object
    interest: object
    responses: object
    limits: object
    trace_dest: TraceDest | None
    sessions: set[Sink]
    watched: dict[bytes, list[Callable[[], None]]]
    def __init__(self, name: str, turn: Turn, seed: int = ..., routes: RouteCache | None = None) -> None: ...
    def send(self, subject: bytes, payload: bytes, headers: bytes = b"", reply: bytes = b"") -> int: ...
    def has_interest(self, subject: bytes) -> bool: ...
    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> None: ...
    def unwatch_interest(self, subject: bytes, changed: Callable[[], None]) -> None: ...
    def subscribe(self, subject: bytes, sink: Sink, queue: bytes = b"", sid: bytes = b"") -> Subscription: ...
    def subscribe_handler(
        self,
        subject: bytes,
        handler: Callable[[Request], Iterator[Step] | None],
        service: bytes | None = None,
        stays_here: bool = False,
    ) -> Subscription: ...
    def add(self, sub: Subscription) -> None: ...
    def unsubscribe(self, sub: Subscription) -> None: ...
    def add_plain(self, sub: Subscription) -> None: ...
    def remove_plain(self, sub: Subscription) -> None: ...
