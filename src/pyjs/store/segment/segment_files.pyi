from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.crypt.keys import StreamKey

class SegmentFiles:
    disk: Disk
    log: Log
    directory: str
    incarnation: int
    suspects: set[int]
    key: StreamKey | None
    names_above: tuple[str, ...]
    def path_of(self, number: int) -> str: ...
