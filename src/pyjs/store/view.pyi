from pyjs.store.form import PlainImage
from pyjs.store.segment_maps import SegmentMaps

SOURCE_HASH: bytes

HELD_MAX: int

class ViewCache:
    held_max: int
    held: int
    def __init__(self, held_max: int = ...) -> None: ...
    def __len__(self) -> int: ...

class View:
    size: int
    def __init__(
        self, cache: ViewCache, owner: SegmentMaps, number: int, image: PlainImage, size: int
    ) -> None: ...
