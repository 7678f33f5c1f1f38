from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class MemStore(StreamStore):
    def __init__(self) -> None: ...
