"""A stream's limits for ingest, and the bytes that it counts in the usage of its account and server."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.wire.ops cimport Msg

cdef enum Feature:
    ALLOW_TTL = 1
    DISCARD_NEW = 2
    DISCARD_NEW_PER_SUBJECT = 4
    NO_ACK = 8
    SEALED = 16
    ALLOW_ROLLUP = 32
    KEEPS_INTEREST = 64         # retention is interest
    REMOVES_ACKNOWLEDGED = 128  # retention is interest or workqueue, so acknowledged messages are removed
    COUNTS = 256                # the stream has counters: a message adds to the last value of its subject
    SCHEDULES = 512             # messages may be schedules
    HOLDS = 1024                # not an option: publishes wait until a large batch is stored
    IN_STEPS = 2048             # not an option: commits wait too, since the steps of a batch have begun
    AWAITS_REPLICA = 4096       # not an option: nothing is committed or evicted until a Replica is attached

cdef class StreamLimits:
    cdef int64_t max_msgs, max_bytes, max_msgs_per_subject, max_msg_size    # as configured: -1 or 0 means no limit
    cdef int64_t max_age_ns, marker_ttl_ns                                  # 0: there is none
    cdef unsigned int features                                              # Feature flags
    cdef tuple scheduled_subjects       # the stream's subjects, if its messages may be schedules

    # Return the limit for which discard new refuses `m`, or 0. Messages whose eviction is noted still count.
    cdef int reached(self, Catalogue catalogue, Msg* m, bint rolls_up) noexcept nogil

cdef class Usage:
    cdef public int64_t used        # bytes of all counted streams
    cdef public int64_t reserved    # sum of the max_bytes of these streams
    cdef public int64_t max         # -1: unlimited

cdef class UsageShare:
    cdef Usage account, server
    cdef int64_t counted            # bytes that this stream counts in both usages

    cdef void count(self, int64_t stored) noexcept nogil
