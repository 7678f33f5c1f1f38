from collections.abc import Callable

from pyjs.store.file.segment_reader import SegmentReader

class Losses:
    msgs: int
    bytes: int
    seqs: list[int]
    def __init__(self) -> None: ...

class Examiner:
    losses: Losses
    mistaken: bool
    on_mistake: Callable[[], None] | None
    def __init__(self, reader: SegmentReader) -> None: ...
    def confirm(self, number: int) -> int: ...
