from pyjs.store.file.segment_writer import SegmentWriter

SOURCE_HASH: bytes

class SegmentReader:
    def __init__(self, writer: SegmentWriter) -> None: ...
    def read_segment(self, number: int) -> bytes: ...
