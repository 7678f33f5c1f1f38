from pyjs.store.file.condition import StoreCondition
from pyjs.store.file.retired_files import RetiredFiles
from pyjs.store.file.segment_maps import SegmentMaps
from pyjs.store.file.store_sync import StoreSync
from pyjs.store.format.recast import Recast
from pyjs.store.index.catalogue import Catalogue
from pyjs.store.segment.rewrite import SegmentRewrite
from pyjs.store.segment.segment_files import SegmentFiles

class Compactor:
    codec: int
    def __init__(
        self,
        catalogue: Catalogue,
        files: SegmentFiles,
        condition: StoreCondition,
        syncs: StoreSync,
        maps: SegmentMaps,
        retired: RetiredFiles,
    ) -> None: ...
    def begin(self, mark: int) -> SegmentRewrite | Recast | None: ...
    def finish(self, error: Exception | None) -> None: ...
    def take_rewritten(self) -> None: ...
    def set_codec(self, codec: int) -> None: ...
    def remove_unfinished(self) -> None: ...
