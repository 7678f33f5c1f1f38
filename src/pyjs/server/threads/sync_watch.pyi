from pyjs.core.sink import Turn
from pyjs.server.threads.syncer import Syncer
from pyjs.store.open_files import OpenFiles

class SyncWatch:
    is_timed: bool
    def __init__(self, turn: Turn, files: OpenFiles, syncer: Syncer) -> None: ...
    def after_turn(self) -> None: ...
