"""The messages of a replicated stream that its leader has accepted and not applied yet."""
from libc.stdint cimport uint64_t

from pyjs.jetstream.stream.limits cimport StreamLimits
from pyjs.jetstream.stream.replicated.proposal cimport Proposal
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.wire.ops cimport Msg

cdef class InFlight:
    cdef uint64_t messages
    cdef uint64_t operations    # number of operations that are proposed and not begun
    cdef dict subjects          # subject -> number of these messages, if a limit per subject refuses copies

    cdef void add(self, Stream stream, Proposal proposal, const char* subject, size_t n) noexcept nogil
    cdef void add_operation(self, Proposal proposal) noexcept
    cdef void remove(self, Proposal proposal) noexcept
    # Return whether discard new refuses a copy while `size` bytes are in flight.
    cdef bint refuses(self, Stream stream, Msg* m, bint mirrored, uint64_t size) noexcept nogil
    cdef void add_subject(self, Proposal proposal, bytes subject) noexcept
    cdef bint refuses_beside(self, StreamLimits limits, Catalogue catalogue, Msg* m, bint rolls_up,
                             uint64_t size) noexcept nogil
