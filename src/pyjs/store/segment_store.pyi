from pyjs.store.segment_reader import SegmentReader

SOURCE_HASH: bytes
NO_SPACE: tuple[int, ...]

class SegmentStore(SegmentReader):
    names_above: tuple[str, ...]
    seal_age_ns: int
    codec: int
    set_aside: list[str]
    resumable: bool
    sync_lost: bool
    written_mark: int
    synced_mark: int
    closed: bool
    def set_meta(self, meta: bytes) -> None: ...
    def cut(self, mark: bool = ..., unsynced: bool = ...) -> None: ...
    def segment_paths(self) -> list[str]: ...
    def sealed_numbers(self) -> list[int]: ...
    def outdate_rewrite(self, number: int) -> None: ...
