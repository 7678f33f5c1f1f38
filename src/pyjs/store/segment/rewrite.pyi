from pyjs.store.open_files import ReplacedFile
from pyjs.store.segment.contents import SegmentContents
from pyjs.store.store import StoredMessage

def record_of(message: StoredMessage) -> bytes: ...

class SegmentRewrite:
    path: str
    number: int
    mark: int
    stale: bool
    encoding: int
    written: bool
    old: ReplacedFile | None
    contents: SegmentContents
    new_path: str
    def save(self) -> None: ...
    def __call__(self) -> Exception | None: ...
