from pyjs.store.store import StreamStore

class MemStore(StreamStore):
    def __init__(self) -> None: ...
