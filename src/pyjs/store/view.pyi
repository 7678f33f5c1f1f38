from pyjs.store.form import PlainImage
from pyjs.store.segment_reader import SegmentReader

SOURCE_HASH: bytes

class View:
    size: int
    def __init__(self, owner: SegmentReader, number: int, image: PlainImage, size: int) -> None: ...

def views_held() -> tuple[int, int]: ...
def views_limited(limit: int) -> int: ...
