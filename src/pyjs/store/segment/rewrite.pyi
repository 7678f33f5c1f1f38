from pyjs.store.segment.scan import SegmentContents

class SegmentRewrite:
    path: str
    number: int
    mark: int
    stale: bool
    form: int
    written: bool
    contents: SegmentContents
    new_path: str
    def save(self) -> None: ...
    def __call__(self) -> Exception | None: ...
