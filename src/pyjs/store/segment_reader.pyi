from collections.abc import Callable

from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.open_files import OpenFiles
from pyjs.store.store import StreamStore
from pyjs.store.vault import StreamKey
from pyjs.store.view import ViewCache

SOURCE_HASH: bytes
UNOPENED: tuple[int, ...]

class SegmentReader(StreamStore):
    disk: Disk
    files: OpenFiles
    directory: str
    log: Log
    segment_size: int
    view_cache: ViewCache
    incarnation: int
    key: StreamKey | None
    lost_msgs: int
    mistaken: bool
    on_mistake: Callable[[], None] | None
    lost_bytes: int
    lost_seqs: list[int]
    def path_of(self, number: int) -> str: ...
    def read_segment(self, number: int) -> bytes: ...
    def note_lost(self, seqs: list[int]) -> None: ...
    @property
    def lost(self) -> tuple[int, list[int], int] | None: ...
    def drop_map(self, number: int) -> None: ...
    def drop_maps(self) -> None: ...
