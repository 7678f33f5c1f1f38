from pyjs.store.file.segment_writer import SegmentWriter

class Eraser:
    def __init__(self, writer: SegmentWriter) -> None: ...
