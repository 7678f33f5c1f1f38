from collections.abc import Callable
from typing import Protocol

from pyjs.core.account import Account
from pyjs.core.sink import Sink, Turn
from pyjs.jetstream.config import StreamConfig
from pyjs.jetstream.dedupe import Dedupe
from pyjs.jetstream.usage import Usage
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class StreamConsumer(Protocol):
    """What a stream needs of a consumer.

    The stream sets `settle` when the consumer is added. A consumer of an interest or workqueue stream appends to
    `settled` the sequences that it needs no more (acknowledged, terminated, delivered without ack policy) and, at
    the end of a pump or ack batch that appended something, calls `settle()` once. A consumer that has caught up
    calls `stream.wait(consumer)` through its `wait` hook; `wake()` then puts it into Turn.consumers when messages
    come (each wait is good for one wake). Only Python calls, none per message.
    """

    name: str
    filters: tuple[bytes, ...]  # empty: everything
    settled: list[int]
    settle: Callable[[], None] | None  # set by Stream.add_consumer; None on limits streams
    wait: Callable[[], None] | None  # set by Stream.add_consumer: wake me when there are messages

    def wake(self) -> None: ...
    def needs(self, seq: int) -> bool: ...  # matched by its filters, and not settled yet
    def on_drops(self, dropped: list[tuple[int, bytes]]) -> None: ...  # (seq, subject), not by its own settling
    def on_purge(self, first_seq: int) -> None: ...  # everything below is gone
    def stop(self, reason: str) -> None: ...  # "deleted" or "shutdown": answer waiting requests, unsubscribe

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
    last_msg_id: bytes
    def __init__(
        self,
        account: Account,
        config: StreamConfig,
        store: StreamStore,
        created_ns: int,
        account_usage: Usage,
        server_usage: Usage,
        domain: str = "",
    ) -> None: ...
