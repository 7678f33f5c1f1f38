from pyjs.store.segment import SegmentContents

SOURCE_HASH: bytes
NEW: str

class SegmentRewrite:
    path: str
    number: int
    mark: int
    stale: bool
    written: bool
    contents: SegmentContents
    new_path: str
    def __call__(self) -> Exception | None: ...
