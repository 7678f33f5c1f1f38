from collections.abc import Callable

from pyjs.base.log import Log
from pyjs.jetstream.consumer.acks.log import StateLog
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.record import StateFile
from pyjs.jetstream.files.metadata import MetadataWriter

class StateKeeper:
    file: StateFile | None
    log: Log
    is_rewriting: bool
    sync_always: bool
    def __init__(
        self,
        file: StateFile | None,
        changes: StateLog,
        metadata: MetadataWriter | None,
        log: Log,
        sync_always: bool,
    ) -> None: ...
    def record(self, consumer: Consumer) -> bool: ...
    def append(self, consumer: Consumer) -> None: ...
    def rewrite(self, consumer: Consumer) -> None: ...
    def when_rewritten(self, done: Callable[[Exception | None], None]) -> None: ...
