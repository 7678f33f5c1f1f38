"""The parts of stream, account and node that a consumer gets when it is made."""

from __future__ import annotations

from typing import NamedTuple

from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.account import Account
from pyjs.jetstream.files.metadata import MetadataWriter
from pyjs.store.store import StreamStore


class Resources(NamedTuple):
    """The parts that a consumer uses. They include the stream's store, but not the stream itself."""

    stream_name: str
    account: Account
    store: StreamStore
    timers: Timers
    rng: Rng
    log: Log
    domain: str = ""
    max_msgs_per_subject: int = -1
    burst_size: int = 1 << 20  # bytes that may be sent at once even with a rate limit
    ack_v2: bool = False  # ack subjects have domain and account in them
    sync_always: bool = False  # acks are answered after the sync, not after the write
    metadata: MetadataWriter | None = None  # None: snapshots are written without a thread
