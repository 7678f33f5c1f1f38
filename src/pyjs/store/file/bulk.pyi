from typing import final

from pyjs.store.index.filter import StoreFilter
from pyjs.store.store import StreamStore

@final
class BulkReader:
    next_seq: int
    def __init__(
        self,
        store: StreamStore,
        wanted: StoreFilter,
        seq: int,
        end_seq: int,
        entries_only: bool = ...,
        incarnation: int = ...,
        unchecked: bool = ...,
    ) -> None: ...
    def read(self, size_max: int, chunk_size: int) -> list[bytes]: ...

def segment_count(store: StreamStore) -> int: ...
def describe_segments(store: StreamStore, offset: int, limit: int) -> list[dict[str, int | bool]]: ...
