import mmap

from pyjs.base.disk import Disk
from pyjs.base.errors import PyjsError
from pyjs.base.log import Log
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.segment.contents import SegmentContents
from pyjs.store.store import SyncJob

_Buffer = bytes | bytearray | memoryview

def encode_index(c: SegmentContents) -> bytes: ...
def decode_index(data: _Buffer | mmap.mmap) -> SegmentContents: ...
def encrypted(data: bytes | memoryview, key: StreamKey) -> bytes: ...
def decrypted(data: _Buffer, key: StreamKey | None) -> _Buffer: ...
def map_whole(disk: Disk, path: str) -> mmap.mmap: ...
def index_path(segment_path: str) -> str: ...
def store_index(disk: Disk, path: str, data: bytes | memoryview) -> None: ...
def remove_file(disk: Disk, log: Log, path: str) -> None: ...

class FullSegment:
    path: str
    number: int
    key: StreamKey | None

class SegmentSync(SyncJob):
    problems: list[str]

class IndexUnusable(PyjsError):
    ordinary: bool
