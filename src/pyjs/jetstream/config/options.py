"""What an operator may set about JetStream, as the engine needs it: server-wide options and account limits.

Plain values; the config room reads them from the file, the node hands them in. -1 means unlimited unless said
otherwise; sizes are bytes, times nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.config import options as config

DEFAULT_MAX_CONSUMERS = 1000  # of a stream that sets no limit of its own


@dataclass(eq=False, repr=False, slots=True)
class AccountLimits:
    """JetStream limits of one account."""

    max_memory: int = -1
    max_store: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    store_max_stream_bytes: int = -1
    max_bytes_required: bool = False


@dataclass(eq=False, repr=False, slots=True)
class JetStreamOptions:
    """The `jetstream` block."""

    store_dir: str
    max_memory: int
    max_store: int
    domain: str = ""
    strict: bool = True
    sync_interval_ns: int = 1_000_000_000
    sync_always: bool = False
    scrub_rate: int = 0  # bytes a second that the check of stored files reads; 0: it is off
    max_duplicate_window_ns: int = 0  # 0: no limit
    max_ack_pending: int = 0  # of a consumer; 0: no limit
    max_request_batch: int = 0  # of a pull request; 0: no limit
    default_max_consumers: int = 0  # 0: DEFAULT_MAX_CONSUMERS, -1: unlimited
    unique_tag: str = ""  # of no effect on a server alone; shown
    ack_v2: bool = False  # ack subjects name domain and account
    key: str = ""  # that encrypts; "": nothing is encrypted
    prev_key: str = ""
    cipher: str = "chacha"
    max_payload: int = 1 << 20  # of the server, for sizes that have no limit of their own

    def max_consumers_of_stream(self) -> int:
        """Return the limit of a stream that sets none; -1: unlimited."""
        return self.default_max_consumers or DEFAULT_MAX_CONSUMERS


def options_from(options: config.Options) -> JetStreamOptions:
    """Return the `jetstream` block of a configuration."""
    given = options.jetstream
    return JetStreamOptions(
        store_dir=given.store_dir,
        max_memory=given.max_memory,
        max_store=given.max_storage,
        domain=given.domain,
        strict=given.strict,
        sync_interval_ns=given.sync_interval_ns,
        sync_always=given.sync_always,
        scrub_rate=given.scrub_rate,
        max_duplicate_window_ns=given.limits.duplicate_window_ns,
        max_ack_pending=given.limits.max_ack_pending,
        max_request_batch=given.limits.max_request_batch,
        default_max_consumers=given.limits.default_max_consumers,
        unique_tag=given.unique_tag,
        ack_v2=options.feature_flags.get("js_ack_fc_v2", False),
        key=given.key,
        prev_key=given.prev_key,
        cipher=given.cipher,
        max_payload=options.max_payload,
    )


def limits_from(given: config.AccountJetStreamOptions) -> AccountLimits:
    """Return the limits of an account's `jetstream` block."""
    return AccountLimits(
        max_memory=given.max_memory,
        max_store=given.max_storage,
        max_streams=given.max_streams,
        max_consumers=given.max_consumers,
        max_ack_pending=given.max_ack_pending,
        memory_max_stream_bytes=given.mem_max_stream_bytes,
        store_max_stream_bytes=given.disk_max_stream_bytes,
        max_bytes_required=given.max_bytes_required,
    )
