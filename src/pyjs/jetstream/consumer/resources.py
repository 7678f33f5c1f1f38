"""Parts of the stream, account and node that a consumer uses, passed to it once."""

from __future__ import annotations

from typing import NamedTuple

from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.account import Account
from pyjs.jetstream.files.metadata import MetadataWriter
from pyjs.store.store import StreamStore


class Resources(NamedTuple):
    """Constructor argument of a consumer. It has the stream's store, not the stream."""

    stream_name: str
    account: Account
    store: StreamStore
    timers: Timers
    rng: Rng
    log: Log
    domain: str = ""
    max_msgs_per_subject: int = -1
    burst_size: int = 1 << 20  # bytes that may be sent at once in spite of a rate limit
    ack_v2: bool = False  # ack subjects include domain and account
    sync_always: bool = False  # acks are answered after the sync
    metadata: MetadataWriter | None = None  # None: snapshots are written at once
