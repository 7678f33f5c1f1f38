from pyjs.core.sink import Sink
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.sublist import Subscription

class Shadow(Sink):
    def __init__(
        self, real: Subscription, rewrite: Rewrite | None, local: bytes, importer: str, allow_trace: bool
    ) -> None: ...
