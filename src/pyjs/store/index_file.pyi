import mmap

from pyjs.base.disk import Disk
from pyjs.base.errors import PyjsError
from pyjs.base.log import Log
from pyjs.store.segment import SegmentContents
from pyjs.store.store import SyncJob

SOURCE_HASH: bytes

def encode_index(c: SegmentContents) -> bytes: ...
def decode_index(data: bytes | mmap.mmap) -> SegmentContents: ...
def index_path(segment_path: str) -> str: ...
def load_index(disk: Disk, path: str, fd: int, size: int) -> SegmentContents: ...
def store_index(disk: Disk, path: str, data: bytes | memoryview) -> None: ...
def index_segment(disk: Disk, f: FullSegment) -> None: ...
def fits_segment(c: SegmentContents, size: int, head: bytes, tail: bytes) -> bool: ...
def index_segments(disk: Disk, segments: list[FullSegment]) -> list[str]: ...
def remove_file(disk: Disk, log: Log, path: str) -> None: ...

class FullSegment:
    path: str
    number: int

class SegmentSync(SyncJob):
    problems: list[str]
    def __init__(
        self,
        disk: Disk,
        fds: list[int],
        directory: str | None,
        mark: int,
        sealed: list[str],
        incarnation: int,
    ) -> None: ...

class IndexUnusable(PyjsError):
    ordinary: bool
    def __init__(self, reason: str, ordinary: bool = ...) -> None: ...
