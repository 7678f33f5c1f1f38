"""The acknowledgement state of a consumer: the last delivery, pending deliveries, and the ack floor.

Each change is added to `changes`, which is written to the state file; recovery replays it with the same code
(replay.pyx). Invariants: every pending sequence is <= delivered_seq. It is also above floor_seq, unless older
messages were delivered again after newer ones.

This module knows nothing of streams and advisories; the consumer notifies the stream and publishes the advisories.
Compiled, because it runs for every delivery and every ack (measured in benchmarks/: pull with explicit acks).
Source: nats.docs "Consumers"; floors compared in tests/conformance.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer.acks.log cimport (
    ACKED_ALL, ACKED_PENDING, DELAYED, EXHAUSTED, NAKED, PROGRESS, REDELIVERED, SETTLED, StateLog,
)
from pyjs.jetstream.consumer.acks.pending cimport Entry, PendingAcks
from pyjs.store.index.sequences cimport index_live
from pyjs.store.index.catalogue cimport Catalogue


cdef class AckState:
    """The deliveries and acks of one consumer."""

    def __cinit__(self, StateLog changes not None):
        self.changes = changes
        self.pending = PendingAcks()
        self.exhausted, self.terms = {}, {}

    def begin(self, uint64_t seq) -> None:
        """Begin at sequence `seq`. All earlier messages count as delivered and acknowledged."""
        self.delivered_seq = self.floor_seq = seq - 1

    def reset(self, uint64_t seq) -> None:
        """Forget all deliveries, and begin again at sequence `seq`. The caller must write a snapshot."""
        self.pending.clear()
        self.set_exhausted({})
        if self.unsent is not None:
            self.unsent.clear()
        self.begin(seq)
        self.delivered_cseq = self.floor_cseq = 0

    # -- deliveries ------------------------------------------------------------------------------------------------

    cpdef void delivered(self, uint64_t seq, int64_t now, bint acked) noexcept nogil:
        """Add a first delivery; `acked` is set for ack policy none.

        `pending.reserve` must have been called before.
        """
        self.delivered_cseq += 1
        self.delivered_seq = seq
        self.changes.delivered(seq, self.delivered_cseq, now)
        if acked:
            self.floor_seq, self.floor_cseq = seq, self.delivered_cseq
        else:
            self.pending.track(seq, self.delivered_cseq, now)

    cdef void sent_again(self, uint32_t i, int64_t now) noexcept nogil:
        """Record a redelivery of entry `i`."""
        self.delivered_cseq += 1
        self.changes.put(REDELIVERED, self.pending.entries[i].seq, <uint64_t> now)
        self.pending.sent_again(i, now)

    def give_up(self, uint64_t seq) -> int:
        """Give up a pending delivery, which stays unacknowledged; return how often the message was delivered.

        The ack floor does not change.
        """
        count = self.exhaust(seq)
        self.changes.put(EXHAUSTED, seq, 0)
        return count

    def term(self, uint64_t seq, bytes reason) -> None:
        """Give up a pending delivery that a client terminated; it stays unacknowledged until `settle`."""
        self.exhaust(seq)
        self.terms[seq] = reason
        self.changes.put_term(seq, reason)

    cdef int exhaust(self, uint64_t seq) except -1:
        """Move the pending delivery of `seq` to `exhausted`; return how often the message was delivered."""
        cdef uint32_t i = self.pending.find(seq)
        count = self.pending.entries[i].count
        self.pending.remove(i)
        self.exhausted[seq] = count
        self.n_exhausted = <uint32_t> len(self.exhausted)
        if self.unsent is not None:
            self.unsent.append(seq)
        return count

    def requeue_all(self) -> None:
        """Queue all pending deliveries for redelivery."""
        for seq, *_ in self.pending.dump():
            self.pending.requeue(self.pending.find(seq))
            self.changes.put(NAKED, seq, 0)

    # -- acks ------------------------------------------------------------------------------------------------------

    cpdef bint ack(self, uint64_t seq) noexcept nogil:
        """Acknowledge one message; return False if it was neither pending nor exhausted."""
        cdef uint32_t i = self.pending.find(seq)
        if i:
            self.acknowledge(i)
        elif self.n_exhausted == 0 or not self.forget_exhausted(seq):
            return False
        self.changes.acked(seq)
        return True

    cdef void acknowledge(self, uint32_t i) noexcept nogil:
        """Acknowledge a pending delivery, and raise the ack floor as far as possible."""
        cdef Entry* e = &self.pending.entries[i]
        cdef Entry* after
        cdef uint64_t seq = e.seq, cseq = e.cseq
        cdef uint32_t newer = e.newer
        cdef bint oldest = e.older == 0     # with ack policy all, it may not be the oldest
        self.pending.remove(i)
        if self.pending.count == 0:
            self.floor_seq, self.floor_cseq = self.delivered_seq, self.delivered_cseq
        elif cseq == self.floor_cseq + 1 and oldest:
            if newer:
                after = &self.pending.entries[newer]
                self.floor_seq, self.floor_cseq = after.seq - 1, after.cseq - 1
            else:
                self.floor_seq, self.floor_cseq = seq, cseq

    cpdef bint ack_to(self, uint64_t seq, uint64_t cseq, bint spares=False) noexcept nogil:
        """Acknowledge all pending deliveries up to `seq`, and raise the ack floor; return whether anything changed.

        If the result is True, the caller must call `take_exhausted` next, unless `spares` is true. With `spares`,
        deliveries that were given up stay unacknowledged, since they wait for their dead letters.

        After the redelivery of an older message, the `consumer_seq` of a later first delivery can be below the floor.
        nats-server confirms such an ack but ignores it; here it counts.
        """
        cdef uint32_t i = self.pending.oldest
        if seq <= self.floor_seq and (i == 0 or self.pending.entries[i].seq > seq):
            return False
        self.pending.remove_to(seq)
        self.floor_seq = seq if seq > self.floor_seq else self.floor_seq
        self.floor_cseq = cseq if cseq > self.floor_cseq else self.floor_cseq
        self.changes.put(ACKED_PENDING if spares else ACKED_ALL, seq, self.floor_cseq)
        return True

    cpdef void in_progress(self, uint64_t seq, int64_t now) noexcept nogil:
        """Restart the ack wait of message `seq` if the message is pending."""
        cdef uint32_t i = self.pending.find(seq)
        if i:
            self.pending.progress(i, now)
            self.changes.put(PROGRESS, seq, <uint64_t> now)

    def nak(self, uint64_t seq, int64_t due_at) -> None:
        """Redeliver a pending message at the time `due_at` (ns; 0: at once)."""
        cdef uint32_t i = self.pending.find(seq)
        if due_at:
            self.pending.delay(i, due_at)
            self.changes.put(DELAYED, seq, <uint64_t> due_at)
        else:
            self.pending.requeue(i)
            self.changes.put(NAKED, seq, 0)

    # -- exhausted messages: given up after max_deliver, or terminated --------------------------------------------

    cdef bint forget_exhausted(self, uint64_t seq) noexcept nogil:
        """Acknowledge an exhausted message; return False if message `seq` is not exhausted."""
        with gil:
            if self.exhausted.pop(seq, None) is None:
                return False
            self.terms.pop(seq, None)
        self.n_exhausted -= 1
        return True

    def settle(self, uint64_t seq) -> bool:
        """Acknowledge a given-up delivery whose dead letter is stored; return False if `seq` was not given up."""
        if not self.forget_exhausted(seq):
            return False
        if self.pending.count == 0:
            self.floor_seq, self.floor_cseq = self.delivered_seq, self.delivered_cseq
        self.changes.put(SETTLED, seq, 0)
        return True

    def take_exhausted(self, uint64_t seq) -> list:
        """Acknowledge all given-up deliveries up to `seq`; return their sequences."""
        taken = [each for each in self.exhausted if each <= seq]
        for each in taken:
            del self.exhausted[each]
            self.terms.pop(each, None)
        self.n_exhausted = <uint32_t> len(self.exhausted)
        return taken

    cdef int set_exhausted(self, dict exhausted) except -1:
        self.exhausted = exhausted
        self.terms = {seq: reason for seq, reason in self.terms.items() if seq in exhausted}
        self.n_exhausted = <uint32_t> len(exhausted)
        return 0

    # -- removals from the stream, and the state -------------------------------------------------------------------

    cdef bint is_unacknowledged(self, uint64_t seq) noexcept:
        """Return whether a delivered message is pending or exhausted."""
        return self.pending.find(seq) != 0 or (self.n_exhausted and seq in self.exhausted)

    cpdef bint purge(self, uint64_t first_seq, Catalogue catalogue, bint acks_all=False) noexcept:
        """Forget purged messages; none below `first_seq` is left. Return whether any of them was pending.

        A purge moves the ack floor as acks of the messages would. With `acks_all` (ack policy all), it stops at
        `first_seq`.
        """
        cdef uint32_t i = self.pending.oldest, newer
        cdef bint removed = False
        while i:
            newer = self.pending.entries[i].newer
            if index_live(&catalogue.index, self.pending.entries[i].seq) == NULL:
                if acks_all:
                    self.pending.remove(i)
                else:
                    self.acknowledge(i)
                removed = True
            i = newer
        self.take_exhausted(first_seq - 1)
        if self.pending.count == 0:
            self.delivered_seq = max(self.delivered_seq, first_seq - 1)
            self.floor_seq, self.floor_cseq = self.delivered_seq, self.delivered_cseq
        elif self.floor_seq < first_seq - 1:
            self.floor_seq = first_seq - 1
            self.floor_cseq = max(self.floor_cseq, self.pending.entries[self.pending.oldest].cseq - 1)
        return removed

    cpdef int fit(self, uint64_t last, Catalogue catalogue) except -1:
        """Adjust the state to a stream that ends at `last` and may have lost or removed messages."""
        cdef uint32_t i = self.pending.oldest, newer
        self.delivered_seq = min(self.delivered_seq, last)
        while i:
            newer = self.pending.entries[i].newer
            if index_live(&catalogue.index, self.pending.entries[i].seq) == NULL:
                self.acknowledge(i)
            i = newer
        self.floor_seq = min(self.floor_seq, last)
        left = {seq: count for seq, count in self.exhausted.items() if index_live(&catalogue.index, seq) != NULL}
        self.set_exhausted(left)
        return 0

    def load(self, dict state) -> None:
        """Load the state that `dump` returned."""
        self.delivered_cseq, self.delivered_seq = state["delivered"]
        self.floor_cseq, self.floor_seq = state["floor"]
        self.pending.restore(state["pending"])
        self.set_exhausted({int(seq): int(count) for seq, count in state["spent"]})
        reasons = [(int(seq), str(reason).encode()) for seq, reason in state.get("terms", ())]
        self.terms = {seq: reason for seq, reason in reasons if seq in self.exhausted}

    def dump(self, pending=None) -> dict:
        """Return the state for `load` as JSON values.

        If `pending` is not None, it replaces the list of the pending deliveries.
        """
        state = {
            "delivered": [self.delivered_cseq, self.delivered_seq],
            "floor": [self.floor_cseq, self.floor_seq],
            "pending": self.pending.dump() if pending is None else pending,
            "spent": list(self.exhausted.items()),
        }
        if self.terms:
            state["terms"] = [(seq, reason.decode("utf-8", "replace")) for seq, reason in self.terms.items()]
        return state
