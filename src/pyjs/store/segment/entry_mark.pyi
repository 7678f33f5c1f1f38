from collections.abc import Generator

from pyjs.store.segment.segment_files import SegmentFiles

class EntryMark:
    index: int
    term: int
    ns: int
    last_id: bytes
    def __init__(self, index: int, term: int, ns: int, last_id: bytes) -> None: ...

def read_mark(state: bytes) -> EntryMark: ...
def cut_steps(files: SegmentFiles) -> Generator[None, None, EntryMark | None]: ...
