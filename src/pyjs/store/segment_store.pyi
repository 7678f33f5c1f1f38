from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.store import StreamStore
from pyjs.store.vault import StreamKey

SOURCE_HASH: bytes
NO_SPACE: tuple[int, ...]
NO_DESCRIPTOR: tuple[int, ...]

class SegmentStore(StreamStore):
    disk: Disk
    directory: str
    log: Log
    segment_size: int
    names_above: tuple[str, ...]
    incarnation: int
    seal_age_ns: int
    key: StreamKey | None
    codec: int
    lost_msgs: int
    lost_bytes: int
    lost_seqs: list[int]
    set_aside: list[str]
    resumable: bool
    written_mark: int
    synced_mark: int
    closed: bool
    def set_meta(self, meta: bytes) -> None: ...
    def cut(self, fd: int, mark: bool = ...) -> None: ...
    def path_of(self, number: int) -> str: ...
    def segment_paths(self) -> list[str]: ...
    def sealed_numbers(self) -> list[int]: ...
    def read_segment(self, number: int) -> bytes: ...
    def note_lost(self, seqs: list[int]) -> None: ...
    @property
    def lost(self) -> tuple[int, list[int], int] | None: ...
    def drop_maps(self) -> None: ...
    def outdate_rewrite(self, number: int) -> None: ...
