from pyjs.store.file.segment_writer import SegmentWriter

SOURCE_HASH: bytes

class Eraser:
    def __init__(self, writer: SegmentWriter) -> None: ...
