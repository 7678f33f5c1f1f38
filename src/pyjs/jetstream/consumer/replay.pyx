"""Restores a consumer's state: loads the snapshot, then replays the deltas with the code that made the changes.

The checksums of the files are valid, but their contents may still be invalid. Deliveries are in stream order, so a
valid log tracks and acknowledges each message at most once. A log that does more is refused, so the sizes of stream
and snapshot limit the work of a replay, whatever numbers the log has.

This module knows nothing of files. Compiled: a starting server replays every log (benchmarks/scaling.py recovery).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer.acks.state cimport AckState
from pyjs.jetstream.consumer.consumer cimport ACK_EXPLICIT, ACK_NONE, Consumer
from pyjs.jetstream.consumer.delivery.cursor cimport DeliveryCursor, Skips
from pyjs.jetstream.consumer.acks.log cimport (
    ACKED, ACKED_ALL, ACKED_PENDING, DELAYED, DELIVERED, NAKED, PROGRESS, REDELIVERED, SETTLED, TERMINATED,
)

import orjson

from pyjs.base.errors import NONSENSE
from pyjs.jetstream.consumer.acks.log import UnknownChange, decode
from pyjs.jetstream.consumer.record import BadState, NewerState, check_version

cdef enum:
    STEPS_MIN = 4096            # number of steps allowed for any log
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence


def restore(Consumer consumer not None, bytes snapshot, deltas) -> bool:
    """Restore the state of `consumer`; return whether the state was ahead of the stream and must be written again.

    Raises:
        BadState: the state is invalid.
        NewerState: a newer version wrote it.
    """
    try:
        state = orjson.loads(snapshot)
        check_version(state)
        consumer.acks.load(state)
        consumer.cursor.begin(state["next_seq"], Skips.from_state(state["skips"]), state["skips_end"])
        replay = Replay(consumer)
        for delta in deltas:
            replay.take(delta)
        consumer.acks.changes.take()            # the file already has the replayed changes
        ahead = clamp(consumer)
    except UnknownChange as error:              # not damage: a checksum covers each delta
        raise NewerState(str(error)) from error
    except NONSENSE as error:
        raise BadState(f"the consumer state is damaged: {error}") from error
    delivered_seq, next_seq = consumer.acks.delivered_seq, consumer.cursor.next_seq
    if not consumer.acks.pending.newest_seq() <= delivered_seq < next_seq:
        raise BadState(f"the consumer state is damaged: delivered {delivered_seq}, next sequence {next_seq}")
    return ahead


def clamp(Consumer consumer not None) -> bool:
    """Adjust the state to a stream that has lost or removed messages since the state was written.

    Return whether the state was ahead of the stream. The stream will use the sequences after its end again, so the
    files must not record them as acknowledged.
    """
    cdef uint64_t last = max(consumer.store.catalogue.last_seq, max(<uint64_t> consumer.config.opt_start_seq, 1) - 1)
    cdef uint64_t delivered = consumer.acks.delivered_seq
    cdef bint ahead = consumer.cursor.next_seq > last + 1 or delivered > last or consumer.cursor.skips_end > last
    if delivered > last:
        consumer.keeper.log.warn(f"JetStream consumer '{consumer.path}' delivered sequence {delivered} past last"
                                 f" stream sequence of {last}")
    consumer.acks.fit(last, consumer.store.catalogue)
    consumer.cursor.fit(last)
    return ahead


cdef class Replay:
    """The replay of the deltas after a snapshot."""
    cdef DeliveryCursor cursor
    cdef AckState acks
    cdef bint untracked         # ack policy none: nothing is pending
    cdef bint explicit          # ack policy explicit
    cdef uint64_t left          # number of acks that may still be looked up

    def __init__(self, Consumer consumer not None) -> None:
        cdef uint64_t last = consumer.store.catalogue.last_seq
        self.cursor = consumer.cursor
        self.acks = consumer.acks
        self.untracked = consumer.ack_policy == ACK_NONE
        self.explicit = consumer.ack_policy == ACK_EXPLICIT
        self.left = last - min(consumer.store.catalogue.first_seq, last) + STEPS_MIN
        self.left += self.acks.pending.count + self.acks.n_exhausted

    def take(self, bytes delta) -> None:
        """Replay the changes of one turn.

        Raises:
            ValueError, OverflowError: the changes are invalid.
        """
        for change in decode(delta):
            kind, numbers = change[0], change[1:]
            if kind == DELIVERED:
                self.delivered(*numbers)
            elif kind == ACKED:
                self.acked(*numbers)
            elif kind == ACKED_ALL:
                self.acked_all(*numbers)
            elif kind == ACKED_PENDING:
                self.acked_all(*numbers, spares=True)
            elif kind == REDELIVERED:
                self.redelivered(*numbers)
            elif kind == PROGRESS:
                self.acks.pending.in_progress(*numbers)
            elif kind == NAKED or kind == DELAYED:
                self.acks.pending.nak(*numbers)
            elif kind == SETTLED:
                self.acks.settle(*numbers)
            elif kind == TERMINATED:
                self.terminated(*numbers)
            else:
                self.exhausted(*numbers)

    def delivered(self, uint64_t seq, uint64_t cseq, uint64_t n, int64_t ts) -> None:
        """Replay the first deliveries of `n` messages from `seq` on; only messages that may exist become pending."""
        cdef AckState acks = self.acks
        cdef DeliveryCursor cursor = self.cursor
        cdef uint64_t last = seq + n - 1, at, first, end = min(last, cursor.catalogue.last_seq)
        cdef bint skipped
        if n == 0 or seq < max(cursor.next_seq, 1) or last < seq or last > SEQ_MAX or cseq + n < cseq:
            raise ValueError(f"{n} first deliveries from {seq} on, where {cursor.next_seq} is the next")
        if acks.pending.count and seq <= acks.pending.entries[acks.pending.newest].seq:
            raise ValueError(f"a first delivery of {seq}, which is not the newest")
        # Removed messages are not pending, so their acks raise the floor only here, up to this delivery.
        skipped = (self.explicit and acks.pending.count + acks.n_exhausted == 0
                   and acks.floor_cseq != acks.delivered_cseq)
        cursor.pass_up_to(last)
        acks.delivered_seq, acks.delivered_cseq = last, cseq + n - 1
        if not self.untracked:
            first = max(seq, cursor.catalogue.first_seq)
            if (skipped or first > seq) and first <= end and acks.pending.count == 0:
                acks.floor_seq, acks.floor_cseq = first - 1, cseq + (first - seq) - 1
            for at in range(first, end + 1):
                if acks.pending.track(at, cseq + (at - seq), ts) == 0:
                    raise MemoryError
        if self.untracked or acks.pending.count == 0:
            acks.floor_seq, acks.floor_cseq = acks.delivered_seq, acks.delivered_cseq

    def acked(self, uint64_t seq, uint64_t n) -> None:
        """Replay acks of the `n` messages from `seq` on."""
        cdef AckState acks = self.acks
        cdef uint64_t last = seq + n - 1, at
        cdef uint32_t i
        if n == 0 or last < seq:
            raise ValueError(f"{n} acks from {seq} on")
        if acks.n_exhausted:
            self.acked_exhausted(seq, last)
        if acks.pending.count == 0:
            return
        seq = max(seq, acks.pending.entries[acks.pending.oldest].seq)
        last = min(last, acks.pending.entries[acks.pending.newest].seq)
        if seq <= last:
            self.count(last - seq + 1)
        for at in range(seq, last + 1):
            i = acks.pending.find(at)
            if i:
                acks.acknowledge(i)

    cdef int acked_exhausted(self, uint64_t seq, uint64_t last) except -1:
        """Replay acks of the exhausted messages from `seq` to `last`."""
        cdef AckState acks = self.acks
        cdef uint64_t at
        self.count(min(last - seq + 1, <uint64_t> acks.n_exhausted))
        if last - seq < acks.n_exhausted:
            for at in range(seq, last + 1):
                acks.forget_exhausted(at)
        else:
            acks.set_exhausted({each: count for each, count in acks.exhausted.items() if not seq <= each <= last})
        return 0

    cdef int count(self, uint64_t n) except -1:
        """Count acks that must be looked up. Raises ValueError if no log of this stream can have so many."""
        if n > self.left:
            raise ValueError("more acks than there were deliveries")
        self.left -= n
        return 0

    def acked_all(self, uint64_t seq, uint64_t cseq, bint spares=False) -> None:
        """Replay an ack of all messages up to `seq`.

        With `spares`, the messages that wait for their dead letters stay unacknowledged.
        """
        if self.acks.ack_to(seq, cseq):
            if not spares:
                self.acks.take_exhausted(seq)
        elif self.acks.floor_cseq < cseq <= self.acks.delivered_cseq:    # acks of removed messages, as above
            self.acks.floor_cseq = cseq

    def redelivered(self, uint64_t seq, int64_t ts) -> None:
        """Replay a redelivery at the time `ts` (ns)."""
        cdef uint32_t i = self.acks.pending.find(seq)
        self.acks.delivered_cseq += 1
        if i:
            self.acks.pending.sent_again(i, ts)

    def exhausted(self, uint64_t seq) -> None:
        """Replay the end of a delivery that reached max_deliver without an ack."""
        if self.acks.pending.find(seq):
            self.acks.give_up(seq)

    def terminated(self, uint64_t seq, *reason) -> None:
        """Replay the end of a delivery that a client terminated; `reason` is the client's text as byte values."""
        if self.acks.pending.find(seq):
            self.acks.term(seq, bytes(reason))
