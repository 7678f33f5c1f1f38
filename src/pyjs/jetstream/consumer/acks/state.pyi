from collections import deque
from collections.abc import Mapping
from typing import final

from pyjs.jetstream.consumer.acks.log import StateLog
from pyjs.jetstream.consumer.acks.pending import PendingAcks

@final
class AckState:
    pending: PendingAcks
    changes: StateLog
    exhausted: dict[int, int]
    terms: dict[int, bytes]
    unsent: deque[int] | None
    delivered_seq: int
    delivered_cseq: int
    floor_seq: int
    floor_cseq: int
    def __init__(self, changes: StateLog) -> None: ...
    def reset(self, seq: int) -> None: ...
    def begin(self, seq: int) -> None: ...
    def nak(self, seq: int, due_at: int) -> None: ...
    def load(self, state: Mapping[str, object]) -> None: ...
