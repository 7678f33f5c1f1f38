"""What of its configuration a stream reads for each message: numbers and flags in C.

Compiled because ingest reads it for every message (benchmarks/: JetStream async publish).
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
