from collections.abc import Generator

from pyjs.core.chore import Step
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.store import StreamStore

class Aging:
    def __init__(self, store: StreamStore) -> None: ...
    def begin(self, stream: Stream) -> None: ...
    def rest(self, stream: Stream) -> Generator[Step]: ...
