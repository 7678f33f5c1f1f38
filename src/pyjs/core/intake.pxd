"""The unparsed input of one connection."""

cdef enum Wait:
    HELD = 1                    # reading waits until the input is parsed
    REST = 2                    # reading and parsing wait for a few milliseconds: a receiver is nearly full
    VERDICT = 4                 # parsing waits: a job decides about the last CONNECT

cdef class Intake:
    cdef object reads           # deque of bytes; the parser is in the first one if `begun`
    cdef object link            # core.link.Link
    cdef unsigned int waits     # Wait flags
    cdef bint begun             # the parser is inside reads[0], or inside a buffer while that is read
    cdef bint queued            # its session is in Turn.inputs
    cdef bint over              # no more input arrives: the session closes when `reads` is empty
    cdef bint stalled           # a receiver is nearly full: rest after this read

    cdef int hold(self) except -1
    cdef int rest(self) except -1
    cdef int go_on(self, unsigned int wait) except -1
