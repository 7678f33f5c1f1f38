"""The output of one route."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.core.outbuf cimport OutBuf
from pyjs.core.sink cimport Turn
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef enum:
    BULK_MIN = 65536            # bytes of a message that counts as large
    PUBLISHERS = 64             # classes of publishers; all publishers of a class change connections together

cdef inline size_t class_of(Msg* m) noexcept nogil:
    """Return the class of a message's publisher, which is a few bits of the publisher's address in memory."""
    return (<size_t> m.origin >> 10) % PUBLISHERS

cdef class RouteWriter:
    cdef object route    # the owner, a Route, which turns flush; None: the route has ended
    cdef object cluster                 # cluster.cluster.Cluster
    cdef object link                    # core.link.Link
    cdef Turn turn
    cdef OutBuf out
    cdef readonly uint64_t bit          # bit in Msg.told; 0: not open yet
    cdef bint is_open                   # messages may be written
    cdef bint paused                    # the transport's buffer is full
    cdef bint lost                      # the transport is closed
    cdef public bint dirty              # the route is in Turn.sessions
    cdef Msg* last    # the last written message, while it is being published; NULL: another frame followed it
    # place in `out` of the frame of `last`, to which queue groups may still be added
    cdef size_t frame_start, frame_size
    cdef readonly uint64_t out_msgs, out_bytes
    cdef uint64_t frames                # number of all frames that were queued
    cdef RouteWriter bulk               # the writer of the connection for large messages; None: there is none
    cdef uint64_t aside_until[PUBLISHERS]    # by class of publisher: `bulk.out_msgs` after its last large message
    cdef uint64_t aside_done            # number of messages of `bulk` that the other side has handled
    cdef bint is_bulk
    # in a writer for large messages: `out_msgs` when the other side was last asked for the number of handled messages
    cdef uint64_t asked
    cdef uint64_t after    # in a writer for large messages: number of frames of the route before its last message

    # Write a message for the plain subscriptions, or for the queue group of `t`; return -1 if there is no
    # room.
    cdef int send_msg(self, Msg* m, uint32_t account, Target* t) noexcept nogil
    # Add the queue group of `t` to the last frame; return -1 if it is no longer at the end of the buffer.
    cdef int add_queue(self, Target* t) noexcept nogil
    cdef int add_queue_to(self, Msg* m, Target* t) noexcept nogil
    cdef void take_over(self, Msg* sent, Msg* m) noexcept nogil
    cdef inline bint goes_aside(self, Msg* m) noexcept nogil:
        """Return whether a message must be sent over the connection for large messages."""
        return self.bulk is not None and (m.size >= BULK_MIN or self.aside_until[class_of(m)] > self.aside_done)

    cdef int send_aside(self, Msg* m, uint32_t account, Target* t) noexcept nogil
    cdef void send_after(self, uint64_t frames) noexcept nogil
    cpdef send_now(self, int kind, parts)
    cdef size_t unsent(self) except? 0
    cdef void tell_news(self) noexcept
    cdef void mark_dirty(self) noexcept nogil
    cdef int write_out(self) except -1
