"""The bytes of the NATS protocol in WebSocket frames of a client."""
from libc.stdint cimport uint64_t

cdef enum:
    HEAD_MAX = 14               # bytes of the longest frame head
    CONTROL_MAX = 125           # bytes of a control frame's payload

cdef enum Place:
    AT_HEAD
    IN_FRAME
    FAULTED                     # no more input is parsed

cdef class FrameReader:
    cdef bytes data                     # the read that is being parsed
    cdef const unsigned char* bytes_in  # the bytes of `data`; valid while `data` is held
    cdef size_t at, end
    cdef Place place
    cdef bint masked, deflates
    cdef public size_t packed_max
    cdef unsigned char head[HEAD_MAX]   # the part of a frame's head that was received so far
    cdef size_t head_len
    cdef int opcode                     # of the current frame
    cdef uint64_t left                  # bytes of the frame that have not arrived
    cdef unsigned char key[4]
    cdef unsigned int key_at            # index of the key byte for the next byte to unmask
    cdef bint fragmented                # frames of a message were received, but not the last one
    cdef bint compressed                # the current message is compressed
    cdef bytearray packed               # the received part of a compressed message
    cdef bytearray control              # the received part of a control frame's payload
    cdef readonly bytes payload         # of the last event
    cdef readonly str fault             # of the last FAULT

    cdef int used_up(self) except -1
    cdef bint read_head(self) except -1
    cdef size_t head_size(self) noexcept nogil
    cdef str objection(self)
    cdef str begin_frame(self)
    cdef size_t take(self, unsigned char* out) noexcept nogil
    cdef int take_plain(self) except -1
    cdef int collect(self, bytearray into) except -1
    cdef int take_packed(self) except -1
    cdef int take_control(self) except -1
