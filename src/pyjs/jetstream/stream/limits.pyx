"""A stream's limits and options for ingest, and its share of the usage of account and server.

There is one `Usage` for each account and storage, and one for each server and storage. Streams add stored bytes and
subtract removed ones; nothing else changes `used`. Compiled because ingest reads both for every message
(benchmarks/: JetStream async publish).
"""
from pyjs.base.bounds import taken


cdef class StreamLimits:
    """The options of one stream as C values."""

    def read(self, config) -> None:
        """Copy the options of a StreamConfig."""
        self.max_msgs = config.max_msgs
        self.max_bytes = config.max_bytes
        self.max_msgs_per_subject = config.max_msgs_per_subject
        self.max_msg_size = config.max_msg_size
        self.max_age_ns = taken("max_age", config.max_age_ns)
        self.marker_ttl_ns = taken("subject_delete_marker_ttl", config.subject_delete_marker_ttl_ns)
        self.features = (
            config.allow_msg_ttl * ALLOW_TTL
            | (config.discard == "new") * DISCARD_NEW
            | config.discard_new_per_subject * DISCARD_NEW_PER_SUBJECT
            | config.no_ack * NO_ACK
            | config.sealed * SEALED
            | (config.allow_rollup_hdrs and not config.deny_purge) * ALLOW_ROLLUP
            | (config.retention == "interest") * KEEPS_INTEREST
            | (config.retention != "limits") * REMOVES_ACKNOWLEDGED
        )


cdef class Usage:
    """The used bytes and their limit."""

    def __cinit__(self, int64_t limit=-1):
        self.max = limit


cdef class UsageShare:
    """The bytes of one stream that count in its account's and the server's usage."""

    def __cinit__(self, Usage account, Usage server):
        self.account, self.server = account, server

    cdef void count(self, int64_t stored) noexcept nogil:
        """Replace the counted bytes by `stored`."""
        cdef int64_t change = stored - self.counted
        self.counted = stored
        self.account.used += change
        self.server.used += change
