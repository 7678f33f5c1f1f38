import mmap
from collections.abc import Iterator

from pyjs.base.log import Log
from pyjs.store.format.outer_header import PlainImage
from pyjs.store.segment.contents import SegmentContents
from pyjs.store.segment.segment_files import SegmentFiles

def is_segment(name: str) -> bool: ...
def contents_of(
    path: str,
    data: bytes | bytearray | memoryview | mmap.mmap,
    number: int,
    incarnation: int,
    next_seq: int,
    sure: bool = ...,
    image: PlainImage | None = ...,
) -> SegmentContents | None: ...
def report(log: Log, path: str, c: SegmentContents) -> None: ...

class RecoveredSegment: ...

class Recovery:
    def __init__(
        self, files: SegmentFiles, segment_size: int, stored_tail: tuple[int, bytes] | None
    ) -> None: ...
    def steps(self) -> Iterator[RecoveredSegment | None]: ...
