"""The entries whose outcome a replica cannot decide because it has lost messages."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.pub_headers cimport PubHeaders
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class Gaps:
    cdef Stream stream
    cdef readonly uint64_t last     # no message with a higher sequence is lost
    cdef readonly uint64_t count    # maximum number of lost messages
    cdef readonly int64_t ids_ns    # time of the youngest id that may be lost

    # Return whether the outcome of a publish is the same with and without the lost messages. The publish is applied
    # at `now_ns` or later; before it, `more` messages may be stored and, if `may_change`, others removed.
    cdef bint decides(self, Msg* m, int64_t now_ns, uint64_t more, bint may_change) noexcept nogil
    # The same for a copy of a mirror or source.
    cdef bint decides_copy(self, Msg* m, bint mirrored, int64_t now_ns, uint64_t more) noexcept nogil
    # The same for a committed operation, see payload.pyx.
    cdef bint decides_operation(self, int kind, const char* payload, size_t n) noexcept nogil
    cdef bint may_lack_room(self, Msg* m, uint64_t more) noexcept nogil
    cdef bint may_be_duplicate(self, PubHeaders* h, int64_t now_ns) noexcept nogil
    cdef bint knows_last(self, const char* subject, size_t n) noexcept nogil
