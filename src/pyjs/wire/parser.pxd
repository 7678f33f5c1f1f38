"""The protocol parser: a cursor over received bytes."""
from pyjs.wire.ops cimport Msg

cdef class Parser:
    cdef Msg msg                    # set by next() for OP_MSG; valid until the next call
    cdef const char* line           # arguments of any operation except OP_MSG
    cdef size_t line_len
    cdef public size_t max_payload
    cdef public size_t max_control_line
    cdef public bint headers        # HPUB is allowed
    cdef const char* data           # the bytes of this read
    cdef size_t size
    cdef size_t at                  # number of bytes of `data` that are parsed
    cdef char* kept                 # the beginning of an operation that is split between reads
    cdef size_t kept_len
    cdef size_t kept_room
    cdef size_t kept_need           # length of the whole operation; 0: unknown, since its control line is incomplete
    cdef bint kept_done             # `next` has returned the operation in `kept`
    cdef char* scratch              # a rebuilt tail, for lines that cannot be forwarded unchanged
    cdef size_t scratch_room

    cdef void begin(self, const char* data, size_t n) noexcept nogil
    cdef int next(self) noexcept nogil              # an Op; OP_NEED: all of this read is parsed
    cdef void finish(self) noexcept nogil           # copy an incomplete operation; after this, `data` may be freed
    cdef bytes take_rest(self)                      # copy the unparsed part; after this, `data` may be freed
    cdef int parse_one(self, const char* p, size_t n, size_t* used) noexcept nogil
    cdef int args(self, int op, const char* p, size_t n, size_t start, size_t* used) noexcept nogil
    cdef int publish(self, bint with_headers, const char* p, size_t n, size_t start, size_t* used) noexcept nogil
    cdef int rebuild_tail(self, const char* size, size_t size_len, size_t header_len) noexcept nogil
    cdef int keep(self, const char* p, size_t n) noexcept nogil
    cdef int next_kept(self) noexcept nogil
