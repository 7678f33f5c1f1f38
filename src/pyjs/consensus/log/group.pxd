"""The index of the node log for one group."""
from libc.stdint cimport int64_t, uint64_t

cdef struct Place:
    uint64_t term
    uint64_t at                         # number of the file << FILE_SHIFT, plus the offset in the file
    uint64_t size                       # bytes of the record


cdef class StoredGroup:
    """One group: the state that the engine needs to open it, and the places of its entries."""
    cdef public uint64_t number, peer
    cdef public str name
    cdef public object conf             # records.Membership
    cdef public uint64_t start, start_term
    cdef public bytes state             # state of the application at `start`
    cdef readonly uint64_t term, vote, commit
    cdef public uint64_t written_commit     # the commit index in its last record
    cdef public str damage              # a description of the loss; "": the group is intact
    cdef public object seq              # number of records that the group has had
    cdef public object seen             # used while a log is read: number of the last record that proves `seq`
    cdef uint64_t base_place            # place of its GROUP record
    cdef readonly uint64_t size         # bytes of its GROUP record and of its entries
    cdef uint64_t base_size
    cdef bint is_based                  # if damaged: whether `start` and the membership are newer than the loss
    cdef uint64_t first                 # index of the first stored entry; start + 1 if intact
    cdef Place* places                  # of the entries
    cdef size_t count, room

    cdef inline int64_t last_index(self) noexcept nogil:
        return <int64_t> (self.first + self.count) - 1      # -1: damaged, and no entry is left

    cpdef bint follow_hard(self, uint64_t term, uint64_t vote, uint64_t commit) except -1
    cdef int add(self, uint64_t index, uint64_t term, uint64_t place, uint64_t size) except -1
    cdef int heal(self) except -1
    cdef void clear(self, uint64_t first) noexcept
    cdef void cut(self, size_t at) noexcept
    cdef void forget(self, size_t count) noexcept
    cdef void give_back(self) noexcept
