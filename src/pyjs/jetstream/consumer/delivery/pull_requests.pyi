from collections.abc import Callable, Sequence

from pyjs.base.rng import Rng
from pyjs.core.account import Account
from pyjs.jetstream.consumer.advisories import ConsumerEvents
from pyjs.jetstream.consumer.delivery.pin import Pin
from pyjs.jetstream.consumer.delivery.pull_request import PullRequest
from pyjs.jetstream.consumer.delivery.waiting import WaitingQueue
from pyjs.jetstream.consumer.delivery.writer import DeliveryWriter

class PullRequests:
    queue: WaitingQueue
    pin: Pin
    def __init__(
        self, account: Account, writer: DeliveryWriter, rng: Rng, events: ConsumerEvents, max_waiting: int
    ) -> None: ...
    def configure(self, policy: str, groups: Sequence[str], pin_wait_ns: int) -> None: ...
    def add(self, reply: bytes, request: PullRequest, now: int) -> bool: ...
    def unpin(self, group: str, reason: str) -> None: ...
    def sweep(self, now: int, at_end: bool, heartbeat: Callable[[], bytes]) -> None: ...
