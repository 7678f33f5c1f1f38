from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.core.account import Account
from pyjs.core.sink import Turn
from pyjs.jetstream.consumer_log import StateLog
from pyjs.jetstream.pending import PendingAcks
from pyjs.jetstream.stream_consumer import StreamConsumer
from pyjs.jetstream.waiting import WaitingQueue
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class ConsumerCore(StreamConsumer):
    closed: bool
    account: Account
    turn: Turn
    store: StreamStore
    rng: Rng
    log: Log
    path: str
    changes: StateLog
    pending: PendingAcks
    waiting: WaitingQueue | None
    spent: dict[int, int]
    push: bool
    next_seq: int
    delivered_seq: int
    delivered_cseq: int
    floor_seq: int
    floor_cseq: int
    delivered_at: int
    acked_at: int
    active_at: int
    paused_until: int
    pin_id: bytes
    rate_bps: int
    bound: bool
    flow_window: int
    flow_pending: int
    flow_sent: int
    flow_asked: bool
    def nak(self, seq: int, cseq: int, count: int, argument: bytes) -> None: ...
    def note_terminated(self, seq: int, cseq: int, count: int, reason: str) -> None: ...
    def forget_spent_below(self, seq: int, settle: bool) -> None: ...
