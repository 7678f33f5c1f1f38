"""Stores copies of messages from other streams, which have already checked these messages.

A stream with a mirror or sources and one replica stores a copy at once. With several replicas, the leader proposes
the copy, and each replica stores it when the entry is applied. The leader checks the limits before it proposes. A
replica must not refuse the copy because of the stream's state: the leader could not copy it again in the right order.

Compiled, because it runs for every copied message (measured in benchmarks/: JetStream mirror).
"""
from libc.stdint cimport uint32_t
from libc.string cimport memset

from pyjs.jetstream.stream.limits cimport ALLOW_ROLLUP, ALLOW_TTL, COUNTS, KEEPS_INTEREST, SEALED
from pyjs.jetstream.stream.pub_headers cimport scan_pub_headers
from pyjs.jetstream.stream.retention cimport skip_unwanted

from pyjs.base.bounds import SEQ_MAX
from pyjs.base.errors import NotNow
from pyjs.jetstream.errcodes import ApiError

cdef uint64_t LAST_SEQ = SEQ_MAX


cdef int keep_copy(Stream target, Msg* m, bint mirrors, bint applied) noexcept nogil:
    cdef PubHeaders h
    if target.limits.features & SEALED or (not applied and target.size_refused(m)):
        return REFUSED
    memset(&h, 0, sizeof(h))
    if m.header_len:
        scan_pub_headers(m.body, m.header_len, &h)
    if h.msg_id.n and target.dedupe.window_ns and not mirrors \
            and target.dedupe.seq_of(h.msg_id.p, h.msg_id.n, target.now()):
        return SKIPPED
    if target.limits.features & COUNTS and not mirrors:
        with gil:
            return keep_counted(target, m, &h, applied)
    return keep(target, m, &h, applied)


cdef int keep(Stream target, Msg* m, PubHeaders* h, bint applied) noexcept nogil:
    """Store a copy that is not a duplicate. Return STORED, SKIPPED (no consumer wants it) or REFUSED."""
    cdef uint64_t seq, before = target.staged_bytes
    cdef bint lives, rolls_up, ends
    lives = h.ttl.n != 0 and target.limits.features & ALLOW_TTL != 0
    rolls_up = h.rollup.n != 0 and target.limits.features & ALLOW_ROLLUP != 0
    ends = h.schedule_next.n != 0 and target.limits.features & ALLOW_ROLLUP != 0
    seq = append(target, m) if applied else target.keep_or_skip(m, rolls_up)
    if seq == 0:
        return REFUSED
    if h.msg_id.n:
        target.remember_id(h, seq)
    else:
        target.dedupe.last_id_len = 0
    if ends:
        with gil:
            target.special.note_schedule(m.body[:m.header_len], seq)
    if lives or rolls_up:
        with gil:
            after(target, m, seq, h.ttl.p[:h.ttl.n] if lives else None,
                  h.rollup.p[:h.rollup.n] if rolls_up else None)
    return STORED if target.staged_bytes != before else SKIPPED


cdef uint64_t append(Stream target, Msg* m) noexcept nogil:
    """Store a message of an entry without checking limits; return its sequence, or 0 if it cannot be stored."""
    if target.store.catalogue.last_seq >= LAST_SEQ:
        return 0
    if target.limits.features & KEEPS_INTEREST and not target.interest.wanted(m.subject, m.subject_len):
        return skip_unwanted(target.store, m, target.wall(), True)
    if target.republisher is None:
        return target.keep(m)
    with gil:
        return target.keep_and_republish(m)


cdef void after(Stream target, Msg* m, uint64_t seq, object ttl, object rollup) noexcept:
    """Apply the TTL and the roll-up header of the message that has just been stored with sequence `seq`."""
    if ttl is not None:
        target.aging.lifetimes.add(seq, ttl, target.store.catalogue.last_ts)
    if rollup is not None and rollup.lower() in (b"sub", b"all"):
        target.evictions.note_rollup(m.subject[:m.subject_len], rollup, seq)


cdef int keep_counted(Stream target, Msg* m, PubHeaders* h, bint applied) noexcept:
    """Store the copy of a counter message, with the new value of the counter; return the result as `keep` does."""
    cdef bytes body
    try:
        headers, payload, _ = counted(target, m)
    except (ApiError, NotNow) as error:
        if applied and isinstance(error, NotNow):
            target.turn.faulted.append((target, error))     # the other replicas have counted it
        return REFUSED              # as in nats-server, the copy is tried again, unless its entry is being applied
    body = headers + payload
    m.body, m.header_len, m.size = body, <uint32_t> len(headers), <uint32_t> len(body)
    return keep(target, m, h, applied)


cdef bint is_countable(Stream target, Msg* m):
    try:
        counted(target, m)
    except (ApiError, NotNow):
        return False
    return True


cdef tuple counted(Stream target, Msg* m):
    """Return the headers, payload and value to store for a copy. Raises ApiError, NotNow: it cannot be counted."""
    cdef uint64_t last_seq = target.store.catalogue.last_seq_of(m.subject, m.subject_len)
    return target.special.count(last_seq, m.body[:m.header_len], m.body[m.header_len:m.size])
