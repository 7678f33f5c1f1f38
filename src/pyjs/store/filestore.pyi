from collections.abc import Callable

from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class SyncJob:
    mark: int
    def __call__(self) -> Exception | None: ...

class FileStore(StreamStore):
    disk: Disk
    directory: str
    log: Log
    segment_size: int
    incarnation: int
    lost_msgs: int
    lost_bytes: int
    lost_seqs: list[int]
    resumable: bool
    written_mark: int
    synced_mark: int
    def __init__(
        self, disk: Disk, directory: str, log: Log, segment_size: int = ..., incarnation: int = ...
    ) -> None: ...
    @property
    def dirty(self) -> bool: ...
    def segment_paths(self) -> list[str]: ...
    def begin_sync(self) -> SyncJob | None: ...
    def finish_sync(self, job: SyncJob, error: Exception | None) -> None: ...
    def sync_now(self) -> None: ...
    def try_resume(self) -> bool: ...
    report: Callable[[str], None]
