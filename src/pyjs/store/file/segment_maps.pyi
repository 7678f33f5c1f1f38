from pyjs.store.index.catalogue import Catalogue
from pyjs.store.segment.view import ViewCache

SOURCE_HASH: bytes

class SegmentMaps:
    view_cache: ViewCache
    def __init__(self, catalogue: Catalogue, view_cache: ViewCache | None) -> None: ...
    def drop_map(self, number: int) -> None: ...
    def drop_maps(self) -> None: ...
