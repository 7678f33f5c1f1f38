"""The number of messages that a copier has not copied yet, counted in steps of about a millisecond.

Copies and new messages update the count. After a removal, the count begins again. But if it took several steps, it is
used for COUNT_NS in spite of removals, since many removals may follow each other quickly. It may then include removed
messages.

This module uses the index of the origin, but no copies and reports.

Compiled, because copies update it (benchmarks/: JetStream mirror).
"""
from libc.stdint cimport int64_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter

cdef int64_t COUNT_NS = 1000000000      # ns


cdef class Backlog:
    """The number of messages that one copier has not copied yet."""

    cdef void forget(self) noexcept nogil:
        """Begin again with the next step, because the position has been set."""
        self.is_known = self.counting = False

    cdef void pass_by(self, uint64_t seq) noexcept nogil:
        """Subtract message `seq`, which the copier passes."""
        if seq <= self.upto and self.msgs:
            self.msgs -= 1

    cdef bint count_some(self, Catalogue origin, uint64_t from_seq, StoreFilter f, int64_t now_ns) noexcept nogil:
        """Count some more matches from the copier's position `from_seq` on; return whether all are counted."""
        cdef uint64_t at
        cdef bint begins = not self.is_usable(origin, now_ns)
        if begins:
            self.msgs, self.upto, self.removed = 0, from_seq - 1, removed_from(origin)
            self.is_known, self.is_long = True, False
        elif from_seq > self.upto:
            self.msgs, self.upto = 0, from_seq - 1
        if begins or self.counting:
            self.counted_ns = now_ns
        if self.upto < origin.last_seq:
            at = self.upto + 1
            self.msgs += origin.count_some(&at, begins, f)
            self.upto = at - 1
        self.counting = self.upto < origin.last_seq
        self.is_long |= self.counting
        return not self.counting

    cdef bint is_usable(self, Catalogue origin, int64_t now_ns) noexcept nogil:
        """Return whether the count can be continued, or new messages can be added to it."""
        if not self.is_known:
            return False
        return self.removed == removed_from(origin) or self.counting or (
            self.is_long and now_ns - self.counted_ns < COUNT_NS)


cdef uint64_t removed_from(Catalogue origin) noexcept nogil:
    """Return the number of sequences of a store that have no message; each removal raises it."""
    return origin.last_seq - origin.msgs
