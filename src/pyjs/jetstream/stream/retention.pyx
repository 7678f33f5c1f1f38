"""Removal of messages that no consumer needs any more, from streams with interest or workqueue retention.

This module uses the store, and the consumers by subject, but no publishes or answers. The stream queues the commit.

Compiled because a sweep examines every message of a stream (benchmarks/scaling.py).
Source: nats.docs "Streams" (RetentionPolicy).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from pyjs.jetstream.stream.interest cimport Interest
from pyjs.jetstream.stream.limits cimport KEEPS_INTEREST, REMOVES_ACKNOWLEDGED, StreamLimits
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.store cimport StreamStore
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

cdef enum:
    SWEPT_PER_TURN = 5000


def sweep_steps(stream, StreamStore store, Interest interest, StreamLimits limits):
    """Examine every message once, in steps, and remove those that no consumer needs.

    With workqueue retention, messages that match no consumer's filter stay.
    """
    cdef StoreFilter everything = store.make_filter(())
    cdef uint64_t seq = store.catalogue.next_seq(0, everything)
    cdef int left = SWEPT_PER_TURN
    while seq and limits.features & REMOVES_ACKNOWLEDGED and not stream.closed:
        if not interest.needed(seq) and (limits.features & KEEPS_INTEREST or interest.wants(seq)):
            drop_or_propose(store, stream.replica, seq)
        seq = store.catalogue.next_seq(seq + 1, everything)
        left -= 1
        if left == 0:
            left = SWEPT_PER_TURN
            stream.note_change()
            yield
    if not stream.closed:
        stream.note_change()


def remove_all(StreamStore store not None, bytes seqs not None) -> None:
    """Remove messages by sequence (u64 each); some may have been removed already."""
    cdef const char* p = seqs
    cdef size_t at, n = len(seqs)
    cdef uint64_t seq = 0
    with nogil:
        for at in range(0, n, 8):
            memcpy(&seq, p + at, 8)
            store.drop(seq, False)


cdef uint64_t skip_unwanted(StreamStore store, Msg* m, int64_t wall, bint keeps_id) noexcept nogil:
    """Use up the sequence of a message that no consumer needs; return the sequence, or 0 if the store refused.

    If `keeps_id` is set and the message has an id, its headers are stored as a message that is removed at once, so
    that a recovery finds the id.
    """
    cdef PubHeaders h
    cdef Msg head
    cdef uint64_t seq
    if keeps_id and m.header_len:
        scan_pub_headers(m.body, m.header_len, &h)
        if h.msg_id.n:
            compose(&head, m.subject, m.subject_len, m.body, m.header_len, m.header_len)
            seq = store.append(&head, max(wall, store.catalogue.last_ts + 1))
            if seq:
                store.drop(seq, False)
            return seq
    if store.catalogue.last_ts < wall:      # the times of this turn may be ahead of `wall`
        store.catalogue.last_ts = wall
    return store.skip()


cdef int drop_or_propose(StreamStore store, object replica, uint64_t seq) except -1:
    """Remove a message. In a replicated stream, the leader proposes the removal, and followers wait for the entry."""
    if replica is None:
        store.drop(seq, False)
    else:
        replica.remove(seq)
    return 0


cdef int remove_unneeded(StreamStore store, Interest interest, uint64_t low, uint64_t high, StoreFilter f,
                         object replica) except -1:
    """Remove the messages from sequence `low` to `high` that match `f` and that no consumer needs."""
    cdef uint64_t rest = 0, seq = low
    while 0 < seq <= high:
        seq = store.catalogue.next_some(seq, f, &rest)
        if 0 < seq <= high:
            if not interest.needed(seq):
                drop_or_propose(store, replica, seq)
            seq += 1
        elif seq == 0:
            seq = rest                  # the search goes on, unless it has reached `high`
    return 0
