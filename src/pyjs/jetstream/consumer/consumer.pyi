from pyjs.base.rng import Rng
from pyjs.core.account import Account
from pyjs.core.sink import Turn
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.consumer.acks.state import AckState
from pyjs.jetstream.consumer.advisories import ConsumerEvents
from pyjs.jetstream.consumer.delivery.cursor import DeliveryCursor
from pyjs.jetstream.consumer.delivery.pacing import Pacing
from pyjs.jetstream.consumer.delivery.pull_requests import PullRequests
from pyjs.jetstream.consumer.delivery.push import FlowControl, PushSubject
from pyjs.jetstream.consumer.record import StateFile
from pyjs.jetstream.consumer.resources import Resources
from pyjs.jetstream.consumer.start import Start
from pyjs.jetstream.consumer.state_keeper import StateKeeper
from pyjs.jetstream.consumer.subjects import ConsumerSubjects
from pyjs.jetstream.stream.stream_consumer import StreamConsumer
from pyjs.store.store import StreamStore
from pyjs.subjects.sublist import Subscription

NEVER_NS: int

class Consumer(StreamConsumer):
    stream_name: str
    created_ns: int
    account: Account
    subjects: ConsumerSubjects
    turn: Turn
    store: StreamStore
    rng: Rng
    events: ConsumerEvents
    keeper: StateKeeper
    cursor: DeliveryCursor
    acks: AckState
    flow: FlowControl
    push: PushSubject | None
    requests: PullRequests | None
    delivered_at: int
    acked_at: int
    active_at: int
    paused_until: int
    pacing: Pacing
    letters: object  # dead_letters.sender.LetterSender; None: it has no stream for dead letters
    @property
    def subscriptions(self) -> list[Subscription]: ...
    def __init__(
        self,
        resources: Resources,
        config: ConsumerConfig,
        name: str,
        created_ns: int,
        file: StateFile | None = None,
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def configure(self, config: ConsumerConfig) -> None: ...
    def update(self, config: ConsumerConfig) -> None: ...
    def clock_stepped(self) -> None: ...
    def tell_pause(self) -> None: ...
    def begin(self, start: Start, written: bool = False) -> None: ...
    def start(self) -> None: ...
    def resume(self) -> None: ...
    def unpin(self, group: str, reason: str) -> None: ...
    def refuse(self, reply: bytes, text: str) -> None: ...
    def sweep_waiting(self, at_end: bool = False) -> None: ...
    def heartbeat(self) -> bytes: ...
    def nak(self, seq: int, cseq: int, count: int, argument: bytes) -> None: ...
    def pump(self) -> None: ...
    def confirm(self, replies: bytes, error: Exception | None) -> None: ...
    def summary(self) -> tuple[int, int, int, int]: ...
    def dump_state(self, pending: object = None) -> dict[str, object]: ...
