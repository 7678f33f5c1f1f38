from pyjs.store.segment.view import ViewCache

class SegmentMaps:
    view_cache: ViewCache
    def drop_maps(self) -> None: ...
