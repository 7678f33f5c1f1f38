"""A stream's limits and options for ingest, and the bytes that it counts in the usage of its account and server.

There is one `Usage` for each storage type of an account, and one for each storage type of the server. A stream adds
its stored bytes to `used`, and subtracts its removed bytes. Streams under construction and the streams of other
workers also count in `used` (transfer/building.py, spread/usage.py). Compiled because the ingest reads limits and
usage for every message (benchmarks/: JetStream async publish).
"""
from pyjs.store.index.sequences cimport Entry, index_live

from pyjs.base.bounds import taken

cdef enum:
    MAX_MSGS_REACHED = 1        # limits that discard new enforces; publish_errors.refusal names them
    MAX_BYTES_REACHED = 2
    MAX_MSGS_PER_SUBJECT_REACHED = 3


cdef uint64_t size_of_oldest(Catalogue catalogue, Msg* m) noexcept nogil:
    """Return the stored size of the oldest message of `m`'s subject, or 0 if there is none."""
    cdef Entry* e = index_live(&catalogue.index, catalogue.first_seq_of(m.subject, m.subject_len))
    return 0 if e == NULL else catalogue.stored_size(e)


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
            | config.allow_msg_counter * COUNTS
            | config.allow_msg_schedules * SCHEDULES
            | (config.retention != "limits") * REMOVES_ACKNOWLEDGED
        )
        self.scheduled_subjects = ()
        if config.allow_msg_schedules:
            self.scheduled_subjects = tuple([each.encode() for each in config.subjects])

    cdef int reached(self, Catalogue catalogue, Msg* m, bint rolls_up) noexcept nogil:
        cdef uint64_t size = catalogue.overhead + m.subject_len + m.size
        cdef uint64_t count = 0
        cdef bint replaces, exact
        if self.max_msgs_per_subject > 0:
            count = catalogue.count_of(m.subject, m.subject_len)
        replaces = self.max_msgs_per_subject > 0 and count >= <uint64_t> self.max_msgs_per_subject
        exact = not replaces or count == <uint64_t> self.max_msgs_per_subject
        if m.header_len:
            size += catalogue.header_overhead
        if replaces and self.features & DISCARD_NEW_PER_SUBJECT and not rolls_up:
            return MAX_MSGS_PER_SUBJECT_REACHED
        if self.max_msgs > 0 and catalogue.msgs >= <uint64_t> self.max_msgs and not replaces:
            return MAX_MSGS_REACHED
        if self.max_bytes > 0 and catalogue.bytes + size > <uint64_t> self.max_bytes \
                and not (replaces and exact and size_of_oldest(catalogue, m) >= size):
            return MAX_BYTES_REACHED
        return 0


cdef class Usage:
    """The bytes of one storage type that an account or the server uses, and their limit (-1: none)."""

    def __cinit__(self, int64_t limit=-1):
        self.max = limit


cdef class UsageShare:
    """The bytes of one stream that count in the usage of its account and of the server."""

    def __cinit__(self, Usage account, Usage server):
        self.account, self.server = account, server

    cdef void count(self, int64_t stored) noexcept nogil:
        """Set the bytes that the stream counts to `stored`, and add the change to both usages."""
        cdef int64_t change = stored - self.counted
        self.counted = stored
        self.account.used += change
        self.server.used += change
