from collections.abc import Callable, Iterator

from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.file.compactor import Compactor
from pyjs.store.file.condition import StoreCondition
from pyjs.store.file.examiner import Examiner
from pyjs.store.file.segment_maps import SegmentMaps
from pyjs.store.file.segment_reader import SegmentReader
from pyjs.store.file.segment_writer import SegmentWriter
from pyjs.store.file.store_sync import StoreSync
from pyjs.store.open_files import OpenFiles
from pyjs.store.segment.rewrite import SegmentRewrite
from pyjs.store.segment.segment_files import SegmentFiles
from pyjs.store.segment.view import ViewCache
from pyjs.store.store import StreamStore

class FileStore(StreamStore):
    files: SegmentFiles
    condition: StoreCondition
    syncs: StoreSync
    maps: SegmentMaps
    compactor: Compactor
    writer: SegmentWriter
    reader: SegmentReader
    examiner: Examiner
    set_aside: list[str]
    synced_index: int
    healing: bool
    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: Log,
        segment_size: int = ...,
        incarnation: int = ...,
        key: StreamKey | None = ...,
        recovered: bool = ...,
        files: OpenFiles | None = ...,
        stored_tail: tuple[int, bytes] | None = ...,
        views: ViewCache | None = ...,
        replicated: int = ...,
    ) -> None: ...
    def recover_steps(self) -> Iterator[None]: ...
    closed: bool
    resumable: bool
    def try_resume(self) -> bool: ...
    mistaken: bool
    def range_of(self, number: int) -> tuple[int, int]: ...
    def ranges(self) -> list[tuple[int, int, int]]: ...
    def lost_seqs(self) -> list[int]: ...
    def damaged_numbers(self, first_seq: int) -> list[int]: ...
    def begin_healing(self) -> None: ...
    def end_healing(self) -> None: ...
    def restoration(self, number: int, records: dict[int, bytes], first_seq: int) -> SegmentRewrite: ...
    def seal_damaged(self, number: int) -> bool: ...
    def begin_removal(self) -> Callable[[], OSError | None] | None: ...
    def finish_removal(self, error: OSError | None) -> None: ...
    def segment_paths(self) -> list[str]: ...
    def sealed_numbers(self) -> list[int]: ...
    def close(self, tails: list[tuple[int, bytes]] | None = ...) -> None: ...
    def release(self) -> None: ...
