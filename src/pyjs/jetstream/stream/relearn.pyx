"""Restores a stream's duplicate window, TTLs, schedules and unfinished roll-ups when it is opened.

A clean stop writes the ids in parts, with a fingerprint of the stream's state. If the fingerprint still matches, the
recovery reads no messages. Otherwise it restores the window from the headers of messages.

This module knows nothing of files. Compiled: runs for every message of the window after a kill (benchmarks/scaling.py
recovery).
"""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.limits cimport ALLOW_ROLLUP, ALLOW_TTL, SCHEDULES
from pyjs.jetstream.stream.dedupe cimport KeptId
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.store.store cimport Record
from pyjs.subjects.tokens cimport has_wildcard

cdef enum:
    STEP_MESSAGES = 8192        # number of messages read in one step: some milliseconds
    SCHEDULE_COST = 32          # a schedule takes as long as this many plain messages


def window_parts(Stream stream, uint64_t part_ids):
    """Yield the ids of the window in parts of up to `part_ids` ids, in the form that `relearn_steps` reads."""
    cdef uint64_t total = len(stream.dedupe), first, count
    for first in range(0, total, part_ids):
        count = min(part_ids, total - first)
        yield {
            "last_seq": stream.store.catalogue.last_seq, "checksum": stream.store.last_checksum,
            "last_id": stream.dedupe.last_msg_id, "total": total, "count": count,
            "ids": stream.dedupe.dump(first, count),
        }


def relearn_steps(Stream stream, int64_t now_ns, parts=()):
    """Restore the duplicate window and the TTLs of a recovered stream. Each step handles one part or some messages.

    `parts` is the stored window, or empty.

    Raises:
        ValueError, TypeError, LookupError, ArithmeticError, MemoryError: `parts` are invalid.
        PyjsError, OSError: `parts` could not be read. After any of these errors, call this again without `parts`.
    """
    cdef bytes last_id = None
    cdef uint64_t seq
    stream.dedupe.forget_from(0)
    for part in parts:
        if part["last_seq"] != stream.store.catalogue.last_seq or part["checksum"] != stream.store.last_checksum:
            stream.dedupe.forget_from(0)        # the window belongs to another state of the stream
            last_id = None
            break
        last_id = part["last_id"]
        if len(stream.dedupe) == 0:
            reserve(stream, part["ids"], part["count"], part["total"])
        stream.dedupe.restore(part["ids"], part["count"])
        yield
    if last_id is None or stream.limits.features & (ALLOW_TTL | SCHEDULES):
        seq = begin_learning(stream, now_ns)
        while seq:
            seq = learn(stream, seq, now_ns)
            yield
        stream.special.scheduling.end_learning()
    if last_id is not None:
        stream.dedupe.set_last_id(last_id, len(last_id))


def replica_steps(Stream stream):
    """Restore the duplicate window, TTLs and schedules of a recovered replica as of its last applied entry."""
    cdef PubHeaders h
    cdef int64_t now_ns = stream.store.applied_ns, from_ns
    yield from relearn_steps(stream, now_ns)
    if stream.store.applied_index == 0:
        return
    stream.dedupe.forget_from(0)
    from_ns = max(stream.dedupe.horizon(now_ns), stream.store.ids_from)
    for seq, ts, headers in (yield from stream.store.headers_steps(from_ns)):
        scan_pub_headers(headers, len(headers), &h)
        # All these ids count at `now_ns`, so none of them had been forgotten when a later one was stored.
        if h.msg_id.n and stream.dedupe.seq_of(h.msg_id.p, h.msg_id.n, now_ns) == 0:
            stream.dedupe.remember(h.msg_id.p, h.msg_id.n, seq, ts)
    stream.dedupe.set_last_id(stream.store.applied_id, len(stream.store.applied_id))


def copied_steps(Stream stream, bytes dump, uint64_t count, bytes last_id):
    """Restore TTLs and schedules of a copied replica, and its duplicate window from `dump` (see Dedupe.dump)."""
    yield from relearn_steps(stream, stream.store.applied_ns)
    stream.dedupe.forget_from(0)
    stream.dedupe.restore(dump, count)
    stream.dedupe.set_last_id(last_id, len(last_id))


def rollup_steps(Stream stream):
    """Note the roll-ups whose removals a kill has prevented; the next commit carries them out.

    Each step reads some messages.
    """
    cdef uint64_t seq = stream.store.run_from
    cdef int left = STEP_MESSAGES
    if seq == 0 or stream.store.catalogue.msgs == 0 or not stream.limits.features & ALLOW_ROLLUP:
        return
    seq = stream.store.catalogue.next_with_headers(seq)
    while seq:
        learn_rollup(stream, seq)
        seq = stream.store.catalogue.next_with_headers(seq + 1)
        left -= 1
        if left <= 0:
            left = STEP_MESSAGES
            yield


cdef int learn_rollup(Stream stream, uint64_t seq) except -1:
    """Note message `seq` again if it is a roll-up, and a message that it may replace is stored."""
    cdef PubHeaders h
    cdef Record r
    cdef uint64_t first = stream.store.catalogue.first_seq
    if first == seq or stream.store.load(seq, &r) != 0:
        return 0
    scan_pub_headers(r.body, r.header_len, &h)
    if h.rollup.n == 0:
        return 0
    subject, scope = r.subject[:r.subject_len], h.rollup.p[:h.rollup.n].lower()
    if scope == b"sub" and not has_wildcard(r.subject, r.subject_len):
        first = stream.store.catalogue.first_seq_of(r.subject, r.subject_len)
    if first < seq and scope in (b"sub", b"all"):
        stream.evictions.note_rollup(subject, scope, seq)
    return 0


def schedule_steps(Stream stream):
    """Find the stored schedules of a stream; each step reads some messages."""
    cdef uint64_t seq = stream.store.catalogue.next_with_headers(1) if stream.store.catalogue.msgs else 0
    cdef PubHeaders h
    cdef Record r
    cdef int left = STEP_MESSAGES
    while seq:
        if stream.store.load(seq, &r) == 0:
            scan_pub_headers(r.body, r.header_len, &h)
            left -= learn_schedule(stream, seq, &h, &r)
        seq = stream.store.catalogue.next_with_headers(seq + 1)
        if left <= 0:
            left = STEP_MESSAGES
            yield
    stream.special.scheduling.end_learning()


cdef int learn_schedule(Stream stream, uint64_t seq, PubHeaders* h, Record* r) except -1:
    """Record the schedule headers of message `seq`, if there are any; return the cost in plain messages."""
    if not ((h.schedule.n or h.schedule_next.n) and stream.limits.features & SCHEDULES):
        return 1
    stream.special.scheduling.learn(r.body[:r.header_len], seq, r.ts, stream.wall())
    return SCHEDULE_COST


cdef int reserve(Stream stream, bytes ids, uint64_t count, uint64_t total) except -1:
    """Allocate memory for all ids of a window, estimated from its first part."""
    cdef uint64_t key_bytes = max(0, <int64_t> len(ids) - <int64_t> (count * sizeof(KeptId)))
    if not 0 < count <= total:
        raise ValueError(f"{count} of {total} message ids")
    stream.dedupe.reserve(total, <size_t> (key_bytes * total // count * 17 // 16))
    return 0


cdef uint64_t begin_learning(Stream stream, int64_t now_ns) except? 0:
    """Return the sequence of the first message with headers to read, or 0 if there is none.

    If the stream allows TTLs or schedules, all messages are read, otherwise only those in the duplicate window.
    """
    cdef uint64_t seq = 1
    if not stream.limits.features & (ALLOW_TTL | SCHEDULES):
        seq = stream.store.catalogue.seq_at(now_ns - stream.dedupe.window_ns)
    stream.dedupe.last_id_len = 0
    if seq == 0 or stream.store.catalogue.msgs == 0:
        return 0
    return stream.store.catalogue.next_with_headers(seq)


cdef uint64_t learn(Stream stream, uint64_t seq, int64_t now_ns) except? 0:
    """Read the headers of some messages from `seq` on; return the sequence at which to continue, or 0 at the end."""
    cdef int64_t horizon = now_ns - stream.dedupe.window_ns
    cdef uint64_t newest = 0
    cdef int left = STEP_MESSAGES
    while seq and left > 0:
        left -= learn_from(stream, seq, horizon)
        newest = seq
        seq = stream.store.catalogue.next_with_headers(seq + 1)
    if seq == 0 and newest != stream.store.catalogue.last_seq:    # the last message has no headers, and thus no id
        stream.dedupe.last_id_len = 0
    return seq


cdef int learn_from(Stream stream, uint64_t seq, int64_t horizon) except -1:
    """Record id, TTL and schedule of message `seq`; return the cost in plain messages."""
    cdef PubHeaders h
    cdef Record r
    stream.dedupe.last_id_len = 0
    cdef int cost
    if stream.store.load(seq, &r) != 0:
        return 1
    scan_pub_headers(r.body, r.header_len, &h)
    if h.ttl.n and stream.limits.features & ALLOW_TTL:
        stream.aging.lifetimes.add(seq, h.ttl.p[:h.ttl.n], r.ts)
    cost = learn_schedule(stream, seq, &h, &r)
    if h.msg_id.n:
        stream.dedupe.set_last_id(h.msg_id.p, h.msg_id.n)
        if r.ts >= horizon and stream.dedupe.seq_of(h.msg_id.p, h.msg_id.n, r.ts) == 0:
            stream.dedupe.remember(h.msg_id.p, h.msg_id.n, seq, r.ts)
    return cost
