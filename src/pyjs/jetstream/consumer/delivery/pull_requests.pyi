from collections.abc import Callable, Sequence

from pyjs.base.rng import Rng
from pyjs.core.account import Account
from pyjs.jetstream.consumer.advisories import ConsumerEvents
from pyjs.jetstream.consumer.delivery.pull_request import PullRequest
from pyjs.jetstream.consumer.delivery.writer import DeliveryWriter

class WaitingQueue:
    count: int
    no_wait: int
    max: int
    def __init__(self, limit: int) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        reply: bytes,
        batch: int,
        max_bytes: int,
        no_wait: bool,
        now: int,
        expires_ns: int,
        heartbeat_ns: int,
        priority: int = 0,
    ) -> bool: ...
    def replies(self) -> list[bytes]: ...
    def wanted(self) -> int: ...

class Pin:
    id: bytes
    group: str
    pinned_at: int
    def assign(self, pin_id: bytes, group: str, now: int) -> None: ...
    def extend(self, now: int) -> None: ...
    def clear(self) -> None: ...

class PullRequests:
    queue: WaitingQueue
    pin: Pin
    def __init__(
        self, account: Account, writer: DeliveryWriter, rng: Rng, events: ConsumerEvents, max_waiting: int
    ) -> None: ...
    def configure(self, policy: str, groups: Sequence[str], pin_wait_ns: int) -> None: ...
    def add(self, reply: bytes, request: PullRequest, now: int) -> bool: ...
    def serves_any(self, num_pending: int, ack_pending: int) -> bool: ...
    def unpin(self, group: str, reason: str) -> None: ...
    def sweep(self, now: int, at_end: bool, heartbeat: Callable[[], bytes]) -> None: ...
