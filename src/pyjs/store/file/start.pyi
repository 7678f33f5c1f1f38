from collections.abc import Generator

from pyjs.store.file.eraser import Eraser
from pyjs.store.file.examiner import Examiner
from pyjs.store.file.segment_writer import SegmentWriter
from pyjs.store.store import StreamStore

class StoreStart:
    def __init__(
        self, store: StreamStore, writer: SegmentWriter, examiner: Examiner, eraser: Eraser
    ) -> None: ...
    def steps(self) -> Generator[None, None, list[str]]: ...
