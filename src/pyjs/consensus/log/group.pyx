"""The index of the node log for one group.

A group is intact or damaged. An intact group has its whole log:

    first = start + 1, last = start + number of entries, start_term <= term of each entry, terms do not decrease

A damaged group has lost a record. Then only records after the loss are used; as soon as they form a complete
log, the group is intact again. Every change of a group corresponds to a record that is written or read.

Compiled because each replicated entry is added on three servers (benchmarks/: r3-sync-1).
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove

from pyjs.base.grow cimport grow, grow_to

from pyjs.consensus.log.records import Membership

FILE_SHIFT = 40     # a place is (number of the file << FILE_SHIFT) + offset in the file

cdef enum:
    SHIFT = 40
    KEPT_MAX = 256      # places that an empty log keeps


cdef class StoredGroup:
    def __init__(self, uint64_t number) -> None:
        self.number = number
        self.name = self.damage = ""
        self.conf = Membership()
        self.state = b""
        self.first, self.seq, self.seen = 1, 0, 0

    def __dealloc__(self):
        free(self.places)

    @property
    def hard(self) -> tuple[int, int, int]:
        """Return term, vote and commit index."""
        return self.term, self.vote, self.commit

    @hard.setter
    def hard(self, hard) -> None:
        self.term, self.vote, self.commit = hard

    @property
    def is_damaged(self) -> bool:
        """Return whether a record of the group was lost, so that the replica must return as another peer."""
        return len(self.damage) > 0

    @property
    def last(self) -> int:
        """Return the index of the last entry; if there is none, return `start`, or -1 for a damaged group."""
        return self.last_index()

    @property
    def oldest_file(self) -> int:
        """Return the number of the oldest file with records of the group."""
        cdef uint64_t oldest = min(self.base_place, self.places[0].at) if self.count else self.base_place
        return oldest >> SHIFT

    cpdef bint follow_hard(self, uint64_t term, uint64_t vote, uint64_t commit) except -1:
        """Set the term, the vote and the commit index; return whether term and vote are unchanged."""
        cdef bint is_same = term == self.term and vote == self.vote
        assert term >= self.term
        assert commit >= self.commit
        assert term > self.term or is_same or self.vote == 0
        self.term, self.vote, self.commit = term, vote, commit
        return is_same

    def term_at(self, uint64_t index) -> int:
        """Return the term of an index, or 0 if the log does not have it."""
        if index == self.start:
            return self.start_term
        if index < self.first or index - self.first >= self.count:
            return 0
        return self.places[index - self.first].term

    def place_of(self, uint64_t index) -> tuple[int, int]:
        """Return the place of an entry's record in the log, and the size of the record in bytes.

        Raises:
            KeyError: the log has no such entry.
        """
        if index < self.first or index - self.first >= self.count:
            raise KeyError(index)
        return self.places[index - self.first].at, self.places[index - self.first].size

    def append(self, uint64_t index, uint64_t term, uint64_t place, uint64_t size) -> None:
        """Add an entry; it replaces the entries with its index or a higher one."""
        self.add(index, term, place, size)

    cdef int add(self, uint64_t index, uint64_t term, uint64_t place, uint64_t size) except -1:
        cdef Place* end
        if index < self.first or index - self.first > self.count:
            assert self.damage      # an intact log has no gaps
            self.clear(index)
        elif index - self.first < self.count:
            self.cut(index - self.first)
        if grow(<void**> &self.places, &self.room, self.count + 1, sizeof(Place)) != 0:
            raise MemoryError
        assert self.count == 0 or self.places[self.count - 1].term <= term
        end = self.places + self.count
        end.term, end.at, end.size = term, place, size
        self.count += 1
        self.size += size
        if self.is_based and self.first <= self.start + 1:
            self.heal()
        return 0

    def begin_at(self, base, uint64_t last, uint64_t place, uint64_t size, *, bint reset) -> None:
        """Apply a GROUP record: the log begins after `base.start`, and its entries up to `last` remain.

        With `reset`, no entry remains.
        """
        assert base.start <= last
        self.name, self.peer, self.conf = base.name, base.peer, base.conf
        self.start, self.start_term = base.start, base.start_term
        self.base_place = place
        self.size += size - self.base_size
        self.base_size = size
        if reset or last == self.start:
            self.clear(self.start + 1)
            self.heal()
        elif self.first <= self.start + 1 and self.last_index() == <int64_t> last:
            self.heal()
        else:
            assert self.damage      # an intact log has every entry after its start
            self.is_based = True

    def lose(self, str damage) -> None:
        """Mark the group as damaged, so that records before the loss are no longer used."""
        self.damage = self.damage or damage
        self.is_based = False
        self.clear(0)

    def check(self) -> None:
        """Check the invariants of an intact group."""
        assert self.first == self.start + 1
        assert self.count == 0 or self.start_term <= self.places[0].term

    cdef int heal(self) except -1:
        """Mark the group as intact, because all entries after the start are present."""
        assert self.first <= self.start + 1 and self.start + 1 - self.first <= self.count
        self.damage, self.is_based = "", False
        self.forget(self.start + 1 - self.first)
        return 0

    cdef void clear(self, uint64_t first) noexcept:
        self.cut(0)
        self.first = first

    cdef void cut(self, size_t at) noexcept:
        """Drop the entries from position `at` on."""
        cdef size_t i
        for i in range(at, self.count):
            self.size -= self.places[i].size
        self.count = at
        self.give_back()

    cdef void forget(self, size_t count) noexcept:
        """Drop the first `count` entries."""
        cdef size_t i
        for i in range(count):
            self.size -= self.places[i].size
        self.count -= count
        if count:
            memmove(self.places, self.places + count, self.count * sizeof(Place))
            self.give_back()
        self.first += count

    cdef void give_back(self) noexcept:
        """Shrink the memory of the places if less than a quarter of it is used."""
        if self.room > KEPT_MAX and self.count < self.room // 4:
            grow_to(<void**> &self.places, &self.room, max(self.count * 2, <size_t> KEPT_MAX), sizeof(Place))
