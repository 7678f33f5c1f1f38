"""The unparsed input of one connection."""

cdef enum Wait:
    HELD = 1                    # reading waits until the held input is parsed
    REST = 2                    # reading and parsing wait for a few milliseconds: a receiver is nearly full
    VERDICT = 4                 # parsing waits for the decision about the last CONNECT

cdef class Intake:
    cdef object reads           # deque of bytes; the first item is partly parsed if `begun`
    cdef object link            # core.link.Link
    cdef unsigned int waits     # Wait flags
    cdef bint begun             # the parser has read a part of reads[0] or, if `reads` is empty, of a buffer
    cdef bint queued            # its session is in Turn.inputs
    cdef bint over              # no more input will arrive: the session closes once `reads` is empty
    cdef bint stalled           # a receiver is nearly full: set REST after this read

    cdef int hold(self) except -1
    cdef int rest(self) except -1
    cdef int go_on(self, unsigned int wait) except -1
