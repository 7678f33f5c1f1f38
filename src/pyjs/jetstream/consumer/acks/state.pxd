"""The acknowledgement state of a consumer."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer.acks.log cimport StateLog
from pyjs.jetstream.consumer.acks.pending cimport PendingAcks
from pyjs.store.index.catalogue cimport Catalogue


@cython.final
cdef class AckState:
    cdef readonly PendingAcks pending
    cdef readonly StateLog changes          # changes since the state was last written
    cdef readonly dict exhausted  # seq -> number of deliveries; of deliveries that reached max_deliver without an ack
    cdef readonly dict terms    # seq -> reason (bytes); of those in `exhausted` that a client terminated
    cdef public object unsent   # deque of sequences added to `exhausted`; None: there is no sender of letters
    cdef uint32_t n_exhausted               # len(exhausted)
    cdef readonly uint64_t delivered_seq, delivered_cseq
    cdef readonly uint64_t floor_seq, floor_cseq    # the ack floor, as reports show it

    cpdef void delivered(self, uint64_t seq, int64_t now, bint acked) noexcept nogil
    cdef void sent_again(self, uint32_t i, int64_t now) noexcept nogil
    cpdef bint ack(self, uint64_t seq) noexcept nogil
    cpdef bint ack_to(self, uint64_t seq, uint64_t cseq, bint spares=*) noexcept nogil
    cdef void acknowledge(self, uint32_t i) noexcept nogil
    cpdef void in_progress(self, uint64_t seq, int64_t now) noexcept nogil
    cdef int exhaust(self, uint64_t seq) except -1
    cdef bint forget_exhausted(self, uint64_t seq) noexcept nogil
    cdef bint is_unacknowledged(self, uint64_t seq) noexcept
    cdef int set_exhausted(self, dict exhausted) except -1
    cpdef bint purge(self, uint64_t first_seq, Catalogue catalogue, bint acks_all=*) noexcept
    cpdef int fit(self, uint64_t last, Catalogue catalogue) except -1
