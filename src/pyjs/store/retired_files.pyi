from pyjs.store.removal import SegmentRemoval
from pyjs.store.segment_files import SegmentFiles
from pyjs.store.store_sync import StoreSync

SOURCE_HASH: bytes

class RetiredFiles:
    def __init__(self, files: SegmentFiles, syncs: StoreSync) -> None: ...
    def begin_removal(self) -> SegmentRemoval | None: ...
    def finish_removal(self, error: Exception | None, closed: bool) -> None: ...
