"""What a stream may hold: its own limits and options as ingest reads them, and its share of what many may hold.

There is one `Usage` for each account and storage, one for each server and storage. Streams add what they store and
subtract what they drop; nothing else changes `used`. Compiled because ingest reads both for every message
(benchmarks/: JetStream async publish).
"""
from pyjs.base.bounds import taken


cdef class StreamLimits:
    """Copies of the options of one stream."""

    def read(self, config) -> None:
        """Take over a StreamConfig."""
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
            | (config.retention != "limits") * SETTLES
        )


cdef class Usage:
    """A sum of bytes and its limit."""

    def __cinit__(self, int64_t limit=-1):
        self.max = limit


cdef class UsageShare:
    """What one stream holds of its account's usage and of the server's."""

    def __cinit__(self, Usage account, Usage server):
        self.account, self.server = account, server

    cdef void count(self, int64_t stored) noexcept nogil:
        """Hold `stored` bytes from now on."""
        cdef int64_t change = stored - self.counted
        self.counted = stored
        self.account.used += change
        self.server.used += change
