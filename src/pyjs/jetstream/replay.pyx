"""A consumer's state restored: its snapshot, and its log repeated with the code that did it first.

The files are whole by their checksums, and may still say anything. Deliveries come in the order of the stream, so a
log tracks each message of the stream once at most, and acknowledges it once. What it says beyond that is no log of
this stream: its cost is bounded by the stream and the snapshot, not by the numbers in it.

Knows nothing of files. Compiled: a start repeats every log (benchmarks/scaling.py recovery).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.jetstream.consumer cimport Consumer
from pyjs.jetstream.consumer_core cimport ACK_NONE
from pyjs.jetstream.consumer_log cimport ACKED, ACKED_ALL, DELAYED, DELIVERED, NAKED, PROGRESS, REDELIVERED

import orjson

from pyjs.base.errors import NONSENSE
from pyjs.jetstream.consumer_log import decode
from pyjs.jetstream.consumer_record import VERSION, BadState, NewerState

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    STEPS_MIN = 4096            # that any log may take
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence


def restore(Consumer consumer not None, bytes snapshot, deltas) -> bool:
    """Bring `consumer` to where it was; returns whether it was ahead of its stream and must be kept anew.

    Raises:
        BadState: the bytes are not a state of this version.
    """
    try:
        state = orjson.loads(snapshot)
        if state.pop("version") != VERSION:
            raise NewerState("the consumer state was written by a newer version: use that one")
        consumer.load_state(state)
        replay = Replay(consumer)
        for delta in deltas:
            replay.take(delta)
        return consumer.clamp()
    except NONSENSE as error:
        raise BadState(f"the consumer state is damaged: {error}") from error


cdef class Replay:
    """The changes behind the snapshot that a consumer has loaded."""
    cdef Consumer consumer
    cdef uint64_t left          # acks that are looked up at most

    def __init__(self, Consumer consumer not None) -> None:
        cdef uint64_t last = consumer.store.catalogue.last_seq
        cdef uint64_t first = min(consumer.store.catalogue.first_seq, last)
        self.consumer = consumer
        self.left = last - first + consumer.pending.count + consumer.n_spent + STEPS_MIN

    def take(self, bytes delta) -> None:
        """Repeat the changes of one turn.

        Raises:
            ValueError, OverflowError: no consumer wrote this.
        """
        for change in decode(delta):
            kind, numbers = change[0], change[1:]
            if kind == DELIVERED:
                self.delivered(*numbers)
            elif kind == ACKED:
                self.acked(*numbers)
            elif kind == ACKED_ALL:
                self.acked_all(*numbers)
            elif kind == REDELIVERED:
                self.redelivered(*numbers)
            elif kind == PROGRESS:
                self.consumer.pending.in_progress(*numbers)
            elif kind == NAKED or kind == DELAYED:
                self.consumer.pending.nak(*numbers)
            else:
                self.spent(*numbers)

    def delivered(self, uint64_t seq, uint64_t cseq, uint64_t n, int64_t ts) -> None:
        """Repeat `n` first deliveries in a row; only those are tracked whose messages the stream may have."""
        cdef Consumer consumer = self.consumer
        cdef uint64_t last = seq + n - 1, at = seq, first, end = min(last, consumer.store.catalogue.last_seq)
        if n == 0 or seq < max(consumer.next_seq, 1) or last < seq or last > SEQ_MAX or cseq + n < cseq:
            raise ValueError(f"{n} first deliveries from {seq} on, where {consumer.next_seq} is the next")
        if consumer.pending.count and seq <= consumer.pending.entries[consumer.pending.newest].seq:
            raise ValueError(f"a first delivery of {seq}, which is not the newest")
        while at <= last and consumer.skips.left:
            consumer.pass_by(at)
            at += 1
        if consumer.skips.left == 0:
            consumer.next_seq = max(consumer.next_seq, last + 1)
        consumer.delivered_seq, consumer.delivered_cseq = last, cseq + n - 1
        if consumer.ack_policy != ACK_NONE:
            first = max(seq, consumer.store.catalogue.first_seq)
            if first > seq and first <= end and consumer.pending.count == 0:   # those before it are gone, and settled
                consumer.floor_seq, consumer.floor_cseq = first - 1, cseq + (first - seq) - 1
            for at in range(first, end + 1):
                if consumer.pending.track(at, cseq + (at - seq), ts) == 0:
                    raise MemoryError
        if consumer.ack_policy == ACK_NONE or consumer.pending.count == 0:
            consumer.floor_seq, consumer.floor_cseq = consumer.delivered_seq, consumer.delivered_cseq

    def acked(self, uint64_t seq, uint64_t n) -> None:
        """Repeat `n` acks in a row."""
        cdef Consumer consumer = self.consumer
        cdef uint64_t last = seq + n - 1, at
        cdef uint32_t i
        if n == 0 or last < seq:
            raise ValueError(f"{n} acks from {seq} on")
        if consumer.n_spent:
            self.acked_spent(seq, last)
        if consumer.pending.count == 0:
            return
        seq = max(seq, consumer.pending.entries[consumer.pending.oldest].seq)
        last = min(last, consumer.pending.entries[consumer.pending.newest].seq)
        if seq <= last:
            self.count(last - seq + 1)
        for at in range(seq, last + 1):
            i = consumer.pending.find(at)
            if i:
                consumer.settle_entry(i)

    cdef int acked_spent(self, uint64_t seq, uint64_t last) except -1:
        """Repeat acks of what was delivered as often as allowed."""
        cdef Consumer consumer = self.consumer
        cdef uint64_t at
        self.count(min(last - seq + 1, <uint64_t> consumer.n_spent))
        if last - seq < consumer.n_spent:
            for at in range(seq, last + 1):
                consumer.spent.pop(at, None)
        else:
            consumer.spent = {each: count for each, count in consumer.spent.items() if not seq <= each <= last}
        consumer.n_spent = <uint32_t> len(consumer.spent)
        return 0

    cdef int count(self, uint64_t n) except -1:
        """Count acks that are looked up. Raises ValueError: there are more than any log of this stream has."""
        if n > self.left:
            raise ValueError("more acks than there were deliveries")
        self.left -= n
        return 0

    def acked_all(self, uint64_t seq, uint64_t cseq) -> None:
        """Repeat the ack of everything up to `seq`."""
        self.consumer.ack_all(seq, cseq)

    def redelivered(self, uint64_t seq, int64_t ts) -> None:
        """Repeat a redelivery."""
        cdef uint32_t i = self.consumer.pending.find(seq)
        self.consumer.delivered_cseq += 1
        if i:
            self.consumer.pending.sent_again(i, ts)

    def spent(self, uint64_t seq) -> None:
        """Repeat that a delivery was given up."""
        cdef Consumer consumer = self.consumer
        cdef uint32_t i = consumer.pending.find(seq)
        if i:
            consumer.spent[seq] = consumer.pending.entries[i].count
            consumer.n_spent = <uint32_t> len(consumer.spent)
            consumer.pending.remove(i)
