from pyjs.store.file.compactor import Compactor
from pyjs.store.file.condition import StoreCondition
from pyjs.store.file.store_sync import StoreSync
from pyjs.store.index.catalogue import Catalogue
from pyjs.store.segment.segment_files import SegmentFiles

NO_SPACE: tuple[int, ...]

class SegmentWriter:
    segment_size: int
    seal_age_ns: int
    def __init__(
        self,
        catalogue: Catalogue,
        files: SegmentFiles,
        condition: StoreCondition,
        syncs: StoreSync,
        compactor: Compactor,
        segment_size: int,
        stored_tail: tuple[int, bytes] | None,
    ) -> None: ...
    def cut(self, mark: bool = ..., unsynced: bool = ...) -> None: ...
    def leave_tail(self) -> None: ...
    def begin_anew(self) -> None: ...
    def give_room_back(self) -> None: ...
    def set_meta(self, meta: bytes) -> None: ...
    def mend_tail(self) -> None: ...
    def growing_path(self) -> str: ...
