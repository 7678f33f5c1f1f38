from pyjs.base.disk import Disk
from pyjs.base.log import Log
from pyjs.store.crypt.vault import StreamKey
from pyjs.store.open_files import OpenFiles

UNOPENED: tuple[int, ...]

class SegmentFiles:
    disk: Disk
    handles: OpenFiles
    log: Log
    directory: str
    incarnation: int
    key: StreamKey | None
    names_above: tuple[str, ...]
    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: Log,
        incarnation: int,
        key: StreamKey | None,
        handles: OpenFiles | None,
    ) -> None: ...
    def path_of(self, number: int) -> str: ...
