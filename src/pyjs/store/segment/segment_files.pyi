from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.open_files import ReplacedFile

class SegmentFiles:
    disk: Disk
    log: Log
    directory: str
    incarnation: int
    key: StreamKey | None
    replaced: list[ReplacedFile]
    names_above: tuple[str, ...]
    def path_of(self, number: int) -> str: ...
