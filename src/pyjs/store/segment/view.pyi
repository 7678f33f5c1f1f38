from pyjs.store.file.segment_maps import SegmentMaps
from pyjs.store.format.form import PlainImage

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
