from builtins import bytes as Bytes

from pyjs.store.store import StreamStore

SOURCE_HASH: Bytes

def append_many(store: StreamStore, count: int, size: int, batch: int = 1000, subjects: int = 1) -> None: ...
def load_many(store: StreamStore, low: int, high: int) -> int: ...
