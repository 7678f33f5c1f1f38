from pyjs.store.format.form import PlainImage
from pyjs.store.segment.scan import SegmentContents

SOURCE_HASH: bytes

def confirmed(c: SegmentContents, image: PlainImage) -> bool: ...
def begins_alike(known: SegmentContents, c: SegmentContents) -> bool: ...
