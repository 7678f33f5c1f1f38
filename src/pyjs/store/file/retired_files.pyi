from pyjs.store.file.store_sync import StoreSync
from pyjs.store.segment.removal import SegmentRemoval
from pyjs.store.segment.segment_files import SegmentFiles

SOURCE_HASH: bytes

class RetiredFiles:
    def __init__(self, files: SegmentFiles, syncs: StoreSync) -> None: ...
    def begin_removal(self) -> SegmentRemoval | None: ...
    def finish_removal(self, error: Exception | None, closed: bool) -> None: ...
