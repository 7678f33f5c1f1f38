from collections.abc import Callable
from typing import Protocol

from pyjs.core.account import Account
from pyjs.core.sink import Sink, Turn
from pyjs.jetstream.config import StreamConfig
from pyjs.jetstream.consumer_config import ConsumerConfig
from pyjs.jetstream.dedupe import Dedupe
from pyjs.jetstream.expiry import Expiry
from pyjs.jetstream.usage import Usage
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class StreamConsumer(Protocol):
    """What a stream needs of a consumer.

    The stream sets `settle` and `wait` when the consumer is added. A consumer of an interest or workqueue stream
    appends to `settled` the sequences that it needs no more (acknowledged, terminated, delivered without ack
    policy) and, at the end of a pump or ack batch that appended something, calls `settle()` once. A consumer that
    has caught up calls `wait()`; `wake()` then puts it into Turn.consumers when messages come (each wait is good
    for one wake). Drops are reported to every consumer, also to the one whose settling caused them.
    """

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> ConsumerConfig: ...
    @property
    def filters(self) -> tuple[bytes, ...]: ...  # empty: everything
    @property
    def settled(self) -> list[int]: ...  # the stream clears it
    settle: Callable[[], None] | None  # None on limits streams
    wait: Callable[[], None] | None

    def wake(self) -> None: ...
    def needs(self, seq: int) -> bool: ...  # matched by its filters, and not settled yet
    def on_drops(self, dropped: list[tuple[int, bytes]]) -> None: ...  # (seq, subject)
    def on_purge(self, first_seq: int) -> None: ...  # everything below is gone, and perhaps more
    def stop(self, reason: str) -> None: ...  # "deleted" or "shutdown"

class Stream(Sink):
    name: str
    config: StreamConfig
    account: Account
    turn: Turn
    store: StreamStore
    dedupe: Dedupe
    consumers: dict[str, StreamConsumer]
    created_ns: int
    closed: bool
    @property
    def last_msg_id(self) -> bytes: ...
    def __init__(
        self,
        account: Account,
        config: StreamConfig,
        store: StreamStore,
        created_ns: int,
        account_usage: Usage,
        server_usage: Usage,
        ack_head: bytes,
        expiry: Expiry,
    ) -> None: ...
    def configure(self, config: StreamConfig) -> None: ...
    def commit(self) -> None: ...
    def commit_now(self) -> None: ...
    def expire(self) -> None: ...
    def settle(self) -> None: ...
    def sweep(self) -> None: ...
    def add_consumer(self, consumer: StreamConsumer) -> None: ...
    def remove_consumer(self, name: str) -> None: ...
    def update_interest(self, consumer: StreamConsumer) -> None: ...
    def purge(self, subject_filter: bytes = b"", before_seq: int = 0, keep: int = 0) -> int: ...
    def delete_msg(self, seq: int, erase: bool) -> bool: ...
    def rebuild_dedupe(self, now_ns: int) -> None: ...
    def close(self) -> None: ...
