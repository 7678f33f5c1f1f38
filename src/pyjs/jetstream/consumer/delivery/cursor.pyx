"""The position of a consumer in its stream: its next message, and its num_pending.

Deliveries, new messages and removals update num_pending. After other changes, the matches are counted again, in
steps: `unread` is the number of matches up to `counted_to`, and each step advances `counted_to`. So num_pending stays
exact while messages come and go between two steps.

A consumer with `last_per_subject` first delivers, for each subject, the message that was the last one when the
consumer was created. `Skips` holds these sequences in packed form, since many consumers may have a million each. The
packed form has the first sequence, then the distance from each sequence to the next, all as LEB128 numbers
(store/index/last_seqs.pyx makes it). A snapshot has the packed form as base64, or an empty list if there are no
skips. A removed message stays in the list until it is passed, but does not count. To find a sequence in the list,
`has` begins at the last of the marks before it.

Invariant: unread <= msgs of the stream, if the count is up to date and all removals are reported.

This module uses the store, but no deliveries, acks or files.

Compiled, because it runs for each first delivery (measured in benchmarks/: pull 500, push).
Source: nats.docs "DeliverPolicy", num_pending.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport Segment, index_find, index_live, is_dead, subject_of
from pyjs.store.store cimport StreamStore

from binascii import a2b_base64, b2a_base64

cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence
cdef enum:
    RESTARTS_MAX = 2        # of counts, until a consumer makes each count in one step
    MARK_EVERY = 128        # skips between two marks
    SKIPS_STEP = 16384      # skips examined in one step: about a millisecond


cdef int read_number(const uint8_t* data, size_t size, size_t* at, uint64_t* number) noexcept nogil:
    """Read the LEB128 number at offset `at`, and advance `at`; return -1 if it is incomplete or too large."""
    cdef uint64_t value = 0
    cdef int shift = 0
    while at[0] < size and shift < 64:
        if shift == 63 and data[at[0]] > 1:
            return -1
        value |= <uint64_t> (data[at[0]] & 0x7f) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            number[0] = value
            return 0
        shift += 7
    return -1


cdef bytes number_bytes(uint64_t number):
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


cdef class Skips:
    """The sequences of the messages that one consumer delivers first, in ascending order."""

    def __init__(self, bytes packed not None):
        """Begin with the first sequence. Raises ValueError if `packed` is not an ascending list."""
        cdef uint64_t gap = 0, seq = 0
        cdef size_t at = 0
        self.data = packed
        self.raw = <const uint8_t*> PyBytes_AS_STRING(packed)
        self.size = PyBytes_GET_SIZE(packed)
        while at < self.size:
            if read_number(self.raw, self.size, &at, &gap) != 0 or gap == 0 or gap > SEQ_MAX - seq:
                raise ValueError("the sequences to deliver first are no ascending numbers")
            seq += gap
            self.left += 1
            if self.left % MARK_EVERY == 0:
                self.add_mark(seq, at)
        if self.left:
            read_number(self.raw, self.size, &self.place.at, &self.place.seq)

    def __dealloc__(self):
        free(self.marks)

    cdef int add_mark(self, uint64_t seq, size_t at) except -1:
        if grow(<void**> &self.marks, &self.room, self.n_marks + 1, sizeof(SkipPlace)) != 0:
            raise MemoryError
        self.marks[self.n_marks].seq, self.marks[self.n_marks].at = seq, at
        self.n_marks += 1
        return 0

    @staticmethod
    def from_state(kept) -> Skips:
        """Return the skips in the field `skips` of a snapshot. Raises ValueError or TypeError if they are invalid."""
        return Skips(b"" if kept == [] else a2b_base64(kept, strict_mode=True))

    def state(self) -> str | list:
        """Return the remaining sequences as the field `skips` of a snapshot: base64 text, or [] if none are left."""
        return b2a_base64(self.packed(), newline=False).decode() if self.left else []

    def packed(self) -> bytes:
        """Return the remaining sequences, packed."""
        return number_bytes(self.place.seq) + self.data[self.place.at : self.size] if self.left else b""

    cdef bint step(self, SkipPlace* place) noexcept nogil:
        """Move `place` to the next sequence; return whether there is one."""
        cdef uint64_t gap = 0
        if place.at >= self.size:
            return False
        read_number(self.raw, self.size, &place.at, &gap)
        place.seq += gap
        return True

    cdef void advance(self) noexcept nogil:
        """Go to the next sequence; `left` must be above 0."""
        self.left -= 1
        self.step(&self.place)

    cdef void cut(self, uint64_t last) noexcept nogil:
        """Remove the sequences above `last`."""
        cdef SkipPlace place = self.place
        cdef size_t end = place.at
        cdef uint64_t kept = 0
        while kept < self.left and place.seq <= last:
            kept += 1
            end = place.at
            if not self.step(&place):
                break
        self.left, self.size = kept, end
        while self.n_marks and self.marks[self.n_marks - 1].seq > last:
            self.n_marks -= 1

    cpdef bint has(self, uint64_t seq) noexcept nogil:
        """Return whether `seq` is one of the remaining sequences."""
        cdef SkipPlace place = self.place
        cdef size_t low = 0, high = self.n_marks, middle
        if self.left == 0 or seq < place.seq:
            return False
        while low < high:                       # `low` becomes the number of marks <= seq
            middle = (low + high) // 2
            if self.marks[middle].seq <= seq:
                low = middle + 1
            else:
                high = middle
        if low and self.marks[low - 1].seq > place.seq:
            place = self.marks[low - 1]
        while place.seq < seq and self.step(&place):
            pass
        return place.seq == seq


cdef class DeliveryCursor:
    """The position of one consumer in its stream, and its num_pending."""

    def __cinit__(self, StreamStore store not None):
        self.store, self.catalogue = store, store.catalogue
        self.skips = Skips(b"")

    def set_filters(self, tuple subjects) -> None:
        """Set the filter subjects; an empty tuple means all messages."""
        self.filter = self.store.make_filter(subjects)
        self.stale = True
        self.end_seq = 0

    def begin(self, uint64_t seq, Skips skips not None, uint64_t skips_end) -> None:
        """Set the position to `seq`. Up to `skips_end`, only the messages in `skips` are delivered."""
        self.next_seq, self.skips, self.skips_end = seq, skips, skips_end

    def reset(self, uint64_t seq) -> None:
        """Set the position to `seq`, and drop the skips."""
        self.begin(seq, Skips(b""), 0)
        self.end_seq = 0
        self.stale = True

    def take_count(self, uint64_t unread, uint64_t counted_to) -> None:
        """Set num_pending to `unread`, the number of matches from the first message to sequence `counted_to`.

        The call has no effect unless the cursor is at the first message, there are no skips, and all removals are
        reported. No message may have been removed since the count.
        """
        if self.next_seq <= self.catalogue.first_seq and self.catalogue.drops.size == 0 and self.skips.left == 0:
            self.unread, self.counted_to, self.stale, self.counting = unread, counted_to, False, False
            self.uncounted = 0

    def num_pending(self) -> int:
        """Return num_pending: the number of messages that wait for their first delivery.

        This may take long, unless `count_some` has just returned True.
        """
        cdef uint64_t unread
        while not self.count_some():
            pass
        unread = self.unread
        if self.store.changing:                 # a removal in steps reports what it has removed after these
            unread = min(unread, self.catalogue.msgs)
        assert self.catalogue.drops.size or unread <= self.catalogue.msgs
        return unread if self.next_seq <= self.catalogue.last_seq or self.skips.left else 0

    def purged(self, uint64_t first_seq) -> None:
        """Update the position after a purge; there are no matches below `first_seq`."""
        self.stale = True
        self.next_seq = max(self.next_seq, first_seq)

    cdef bint covers(self, uint64_t seq) noexcept nogil:
        """Return whether message `seq` is in the stream and matches the filters."""
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
            return False
        return self.filter.matches(&self.catalogue.subjects.table, subject_of(s, <uint32_t> (seq - s.base)))

    cpdef uint64_t find(self) noexcept nogil:
        """Return the sequence of the next first delivery, or 0 if there is none at present."""
        cdef uint64_t seq = self.find_some()
        while seq == 0 and self.searching:
            seq = self.find_some()
        return seq

    cpdef uint64_t find_some(self) noexcept nogil:
        """Search for the next first delivery for about a millisecond; return its sequence, or 0.

        If the result is 0 and `searching` is set, the search must continue. If `searching` is not set, there is no
        match at present.
        """
        cdef uint64_t seq, rest = 0
        if self.skips.left:
            self.searching = not self.pass_removed_skips()
            if self.searching:
                return 0
        if self.skips.left:
            return self.skips.place.seq
        seq = self.catalogue.next_some(self.next_seq, self.filter, &rest)
        self.end_seq = 0
        self.searching = rest != 0
        if self.searching:
            self.next_seq = rest
        elif seq == 0:
            self.end_seq = self.catalogue.last_seq
            if self.next_seq <= self.catalogue.last_seq:
                self.next_seq = self.catalogue.last_seq + 1
            self.unread = 0
        return seq

    cpdef void pass_by(self, uint64_t seq) noexcept nogil:
        """Advance past message `seq`, which matches the filters."""
        if self.unread:
            self.unread -= 1
        self.advance(seq)

    cdef void advance(self, uint64_t seq) noexcept nogil:
        """Move the position past `seq`, which must be the sequence of the next message."""
        self.next_seq = seq + 1
        if self.skips.left:
            self.skips.advance()
            if self.skips.left == 0:
                self.next_seq = self.skips_end + 1

    cdef bint pass_removed_skips(self) noexcept nogil:
        """Advance to the next skip whose message was not removed; return False if the search must continue."""
        cdef uint32_t left = SKIPS_STEP
        if index_live(&self.catalogue.index, self.skips.place.seq) != NULL:
            return True
        # A removal that is not reported yet would not be subtracted any more; a count may have begun before it.
        self.stale |= self.catalogue.drops.size != 0 or self.counting
        while left and self.skips.left and index_live(&self.catalogue.index, self.skips.place.seq) == NULL:
            self.advance(self.skips.place.seq)
            left -= 1
        return left != 0

    cpdef void pass_up_to(self, uint64_t last) noexcept nogil:
        """Advance past all sequences up to `last`, which were delivered or removed; num_pending is counted again."""
        while self.skips.left and self.skips.place.seq <= last:
            self.advance(self.skips.place.seq)
        self.next_seq = max(self.next_seq, last + 1)
        self.stale = True

    cdef bint is_counted(self) noexcept nogil:
        return not self.stale and self.catalogue.last_seq <= self.counted_to

    cpdef bint count_some(self) noexcept nogil:
        """Count the matches after the cursor for about a millisecond; return whether all are counted.

        Purges make a count begin again. If that has happened RESTARTS_MAX times, each count is made in one step, so
        that it ends although purges follow each other quickly.
        """
        if self.is_counted():
            return True
        self.exclude_removals()
        if self.stale and self.counting:
            self.restarts = min(self.restarts + 1, RESTARTS_MAX)
        self.count_step()
        while self.counting and self.restarts == RESTARTS_MAX:
            self.count_step()
        return not self.counting

    cdef void exclude_removals(self) noexcept nogil:
        """Exclude removals that happened before the next step of the count and are not reported yet.

        `dropped` ignores these removals: they are before position `excluded` of the log, and their sequences are
        above `excluded_above`. If some of them are not reported yet and later removals have been added to the log,
        the count begins again.
        """
        cdef uint64_t logged = self.catalogue.drops.told + self.catalogue.drops.size
        self.stale |= self.catalogue.drops.told < self.excluded < logged
        if self.stale or self.catalogue.drops.told >= self.excluded:
            self.excluded, self.excluded_above = logged, 0 if self.stale else self.counted_to

    cdef void count_step(self) noexcept nogil:
        """Count some more matches after the cursor, or restart the count if it is stale."""
        cdef uint64_t at
        cdef bint begins = not self.counting
        if self.stale:
            self.stale = self.counting = False
            self.unread, self.counted_to = 0, self.next_seq - 1
            self.uncounted, self.counted = self.skips.left, self.skips.place
            begins = True
        if self.uncounted:
            self.counting = not self.count_skips()
            if self.counting:
                return
            begins = True
        at = max(self.counted_to + 1, self.next_seq)
        self.unread += self.catalogue.count_some(&at, begins, self.filter)
        self.counted_to = at - 1
        self.counting = not self.is_counted()

    cdef bint count_skips(self) noexcept nogil:
        """Count some more of the skips that were not removed; return whether all are counted."""
        cdef uint32_t left = SKIPS_STEP
        while left and self.uncounted:
            self.unread += index_live(&self.catalogue.index, self.counted.seq) != NULL
            self.counted_to = self.counted.seq
            self.skips.step(&self.counted)
            self.uncounted -= 1
            left -= 1
        if self.uncounted == 0:
            self.counted_to = self.skips_end
        return self.uncounted == 0

    cpdef void woken(self, uint64_t seq) noexcept nogil:
        """Skip the messages between the end of the last search and `seq`, since none of them matches.

        If `seq` is 0, the next match is unknown, and nothing is skipped.
        """
        if seq == 0 or self.end_seq == 0 or self.end_seq + 1 != self.next_seq or self.skips.left:
            return
        if seq > self.next_seq:
            self.next_seq = seq
            if self.unread == 0 and not self.stale:
                self.counted_to = max(self.counted_to, seq - 1)

    cpdef void dropped(self, uint64_t seq) noexcept nogil:
        """Subtract a removed match from `unread`, unless it was removed before it could be counted."""
        if seq < self.next_seq or self.stale or seq > self.counted_to:
            return
        if seq > self.excluded_above and self.catalogue.drops.told + self.catalogue.drops.at < self.excluded:
            return
        if self.unread and (self.skips.left == 0 or seq > self.skips_end or self.skips.has(seq)):
            self.unread -= 1

    def dump(self) -> dict:
        """Return the position, for `begin`, as JSON values."""
        return {"next_seq": self.next_seq, "skips": self.skips.state(), "skips_end": self.skips_end}

    cpdef void fit(self, uint64_t last) noexcept nogil:
        """Clamp the position to the stream: from its first message to the sequence after `last`."""
        self.next_seq = max(min(self.next_seq, last + 1), self.catalogue.first_seq)
        self.skips_end = min(self.skips_end, last)
        if self.skips.left:
            self.skips.cut(last)
            if self.skips.left == 0:
                self.next_seq = max(self.next_seq, self.skips_end + 1)
        self.stale = True
