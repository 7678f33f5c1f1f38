from collections.abc import Iterator, Sequence

from pyjs.base.errors import CorruptRecord
from pyjs.base.log import Log
from pyjs.consensus.payloads import Key, Payloads
from pyjs.consensus.seams import Peers

WINDOW: int
BATCH_SIZE: int

class Outbox:
    dropped: int
    damaged: dict[int, CorruptRecord]
    def __init__(self, peers: Peers, payloads: Payloads, text_log: Log) -> None: ...
    def send(self, batches: Sequence[tuple[int, bytes, Sequence[Key]]]) -> None: ...

def split(frames: bytes, keys: Sequence[Key]) -> Iterator[tuple[bytes, Sequence[Key]]]: ...
