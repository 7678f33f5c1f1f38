"""Frames between servers of a cluster: a header of 12 bytes, little endian, and a body."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t

cdef enum FrameKind:
    FRAME_ACCOUNT = 1           # the name of an account, which gets the number in the header
    FRAME_INTEREST = 2          # the sender's subscriptions of one subject and queue group
    FRAME_MSG = 3
    FRAME_PING = 4
    FRAME_PONG = 5
    FRAME_INFO = 6              # JSON: the sender's description of itself and its peers
    FRAME_ERROR = 7             # text: the reason why the sender closes
    FRAME_SYNCED = 8            # the interest that existed when the route opened has been sent
    FRAME_SENDER = 9            # JSON: the client of the next message; between workers
    FRAME_CLIENTS = 10          # the number of the sender's clients in an account, 4 bytes
    FRAME_AFTER = 11            # on a bulk connection: how many frames of the route precede the next frame
    FRAME_CONSENSUS = 12        # a batch for the replicated groups (consensus/batch.py); on a separate connection

cdef enum FrameFlag:
    FLAG_PLAIN = 1              # FRAME_MSG: for plain subscriptions
    FLAG_ALIASED = 2            # FRAME_MSG: the route is found by another subject

cdef enum:
    HEADER_SIZE = 12
    MSG_FIXED_SIZE = 24
    INTEREST_FIXED_SIZE = 8
    FRAME_MAX = 67108864 + 1048576      # bytes of a body: the largest max_payload, plus the subjects of the message
    CONTROL_MAX = 1048576       # bytes of any other body

cdef struct FrameHeader:
    uint32_t size               # of the body
    uint32_t account
    uint8_t kind
    uint8_t flags
    uint16_t reserved

cdef struct MsgFixed:           # followed by subject, found_by, tail with body and CRLF, queues
    uint32_t subject_len
    uint32_t reply_len
    uint32_t header_len
    uint32_t size
    uint32_t found_by_len
    uint32_t queues_len

cdef struct InterestFixed:      # followed by subject and queue
    uint32_t weight             # members of the queue group, or 1; 0: no subscription is left
    uint32_t subject_len

cdef class FrameReader:
    cdef const char* data
    cdef size_t left
    cdef char* kept             # the beginning of a frame that has not arrived completely
    cdef size_t kept_len, kept_room
    cdef FrameHeader header     # of the last frame found
    cdef const char* body

    # Start a read, which must stay alive until `next` returns 0.
    cdef void begin(self, const char* data, size_t n) noexcept nogil
    # 1: a frame is in `header` and `body`, valid until the next call. 0: the read is used up. -1: not a frame.
    cdef int next(self) noexcept nogil
    cdef int next_kept(self) noexcept nogil
    cdef int refill(self, size_t want) noexcept nogil
    cdef int keep(self) noexcept nogil
