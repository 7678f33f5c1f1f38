from collections.abc import Generator

from pyjs.store.segment.segment_files import SegmentFiles

def kept_path(path: str) -> str: ...
def headers_steps(
    files: SegmentFiles, from_ns: int
) -> Generator[None, None, list[tuple[int, int, bytes]]]: ...
