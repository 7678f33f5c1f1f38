from collections.abc import Callable

from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class FileStore(StreamStore):
    disk: Disk
    directory: str
    log: Log
    segment_size: int
    incarnation: int
    lost_msgs: int
    lost_bytes: int
    lost_seqs: list[int]
    seal_age_ns: int
    resumable: bool
    written_mark: int
    synced_mark: int
    def __init__(
        self, disk: Disk, directory: str, log: Log, segment_size: int = ..., incarnation: int = ...
    ) -> None: ...
    def set_meta(self, meta: bytes) -> None: ...
    def segment_paths(self) -> list[str]: ...
    def read_segment(self, number: int) -> bytes: ...
    def note_lost(self, seqs: list[int]) -> None: ...
    def try_resume(self) -> bool: ...
    def sync_failed(self, error: Exception) -> None: ...
    report: Callable[[str], None]
