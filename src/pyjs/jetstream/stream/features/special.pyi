from typing import Protocol, type_check_only

from pyjs.core.sink import Sink
from pyjs.jetstream.stream.stream import Stream

@type_check_only
class Server(Protocol):
    max_payload: int

class SpecialPublishes(Sink):
    def __init__(self, stream: Stream, server: Server) -> None: ...
