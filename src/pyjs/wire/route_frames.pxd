"""Frames between servers of a cluster: a header of 12 bytes, little endian, and a body."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t

cdef enum FrameKind:
    FRAME_ACCOUNT = 1           # the name of an account, for which the number in the header is used from now on
    FRAME_INTEREST = 2          # the sender's subscriptions of one subject and queue group
    FRAME_MSG = 3
    FRAME_PING = 4
    FRAME_PONG = 5
    FRAME_INFO = 6              # JSON: the sender's description of itself and its peers
    FRAME_ERROR = 7             # text: the reason why the sender closes
    FRAME_SYNCED = 8            # all interest that existed when the route opened has been sent
    FRAME_SENDER = 9            # JSON: the client that sent the next message; only between workers
    FRAME_CLIENTS = 10          # the number of clients that an account has at the sender, 4 bytes
    FRAME_AFTER = 11            # on a bulk connection: number of frames of the route that precede the next frame
    FRAME_CONSENSUS = 12  # a batch for the replicated groups (consensus/batch.pyx); only on a separate connection
    FRAME_REQUEST = 13  # an API request that the receiver answers (jetstream/spread/notes.py); only between workers

cdef enum FrameFlag:
    FLAG_PLAIN = 1              # in FRAME_MSG: the message is for plain subscriptions
    FLAG_ALIASED = 2            # in FRAME_MSG: receivers were found by another subject
    FLAG_NUMBERED = 4           # in FRAME_MSG: the message has a number (Msg.number)

cdef enum:
    HEADER_SIZE = 12
    MSG_FIXED_SIZE = 24
    NUMBER_SIZE = 8
    INTEREST_FIXED_SIZE = 8
    # maximum bytes of a message's body: the largest max_payload, and room for its subjects
    FRAME_MAX = 67108864 + 1048576
    CONTROL_MAX = 1048576       # maximum bytes of any other body

cdef struct FrameHeader:
    uint32_t size               # of the body
    uint32_t account
    uint8_t kind
    uint8_t flags
    uint16_t reserved

cdef struct MsgFixed:           # followed by the number (FLAG_NUMBERED), subject, found_by, tail, queues
    uint32_t subject_len
    uint32_t reply_len
    uint32_t header_len
    uint32_t size
    uint32_t found_by_len
    uint32_t queues_len

cdef struct InterestFixed:      # followed by subject and queue
    uint32_t weight             # number of members of the queue group, or 1; 0: no subscription is left
    uint32_t subject_len

cdef class FrameReader:
    cdef const char* data
    cdef size_t left
    cdef char* kept             # the received part of an incomplete frame
    cdef size_t kept_len, kept_room
    cdef FrameHeader header     # of the frame that `next` returned last
    cdef const char* body

    # Begin a read, which must stay in memory until `next` returns 0.
    cdef void begin(self, const char* data, size_t n) noexcept nogil
    # 1: a frame is in `header` and `body`, valid until the next call. 0: the read is parsed. -1: not a frame.
    cdef int next(self) noexcept nogil
    cdef int next_kept(self) noexcept nogil
    cdef int refill(self, size_t want) noexcept nogil
    cdef int keep(self) noexcept nogil
