"""The number of messages that a copier has not copied yet."""
cimport cython
from libc.stdint cimport int64_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter


@cython.final
cdef class Backlog:
    cdef uint64_t msgs              # number of matches from the copier's position up to `upto`
    cdef uint64_t upto              # sequence in the origin up to which messages are counted
    cdef uint64_t removed           # number of sequences without a message when the count began
    cdef int64_t counted_ns         # time of the last step of the count
    cdef bint is_known              # false: the next step begins a count
    cdef bint counting              # the last step was not the last one that the count needs
    cdef bint is_long               # the count has taken several steps

    cdef void forget(self) noexcept nogil
    cdef void pass_by(self, uint64_t seq) noexcept nogil
    cdef bint count_some(self, Catalogue origin, uint64_t from_seq, StoreFilter f, int64_t now_ns) noexcept nogil
    cdef bint is_usable(self, Catalogue origin, int64_t now_ns) noexcept nogil
