"""Receivers of messages, and what one turn of the node has to look at."""
from libc.stdint cimport int64_t

from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef class Turn:
    """The work lists of one turn: who has output, who has something to commit, pump or answer.

    The lists hold each object at most once: the object keeps its own `dirty` flag and clears it when served.
    """
    cdef public int64_t now             # ns since the epoch; set by the node at each read and each turn
    cdef public int64_t skew            # wall time minus `now`, ns; set by the node at each turn
    cdef public bint pressure           # a forced turn is due: buffers are full, acks pile up
    cdef public bint crowded            # set when a receiver has much queued already; whoever looks at it clears it
    cdef public int copies_left         # how often streams may copy from others in this turn; set by the node
    cdef public int64_t input_left      # work on input that sessions may do in this turn, see core.session
    cdef int64_t extra_work             # of the message that is being delivered, beside 1 for each receiver
    cdef readonly object inputs         # deque of ClientSessions with input left, who waits longest first
    cdef readonly list sessions         # ClientSessions with output to flush or subscriptions to retire
    cdef readonly list streams          # Streams with records to commit or PubAcks to send
    cdef readonly list consumers        # Consumers to pump
    cdef readonly list inboxes          # Streams whose consumers have settled messages
    cdef readonly list expired          # Consumers that nobody used for their inactive_threshold
    cdef readonly list held             # what had no share of `copies_left`: first among consumers in the next turn
    cdef readonly list requests         # core.sink.Request, for PySinks
    cdef readonly list chores           # core.chore.Chore: work too long for one turn
    cdef readonly list faulted          # (owner, exception): whose work failed unexpectedly, to be mended
    cdef readonly list upkeep           # stores whose files can be made smaller, in a thread
    cdef readonly list jobs             # core.job.Job: to be run in a thread
    cdef readonly list finished         # (Job, Exception or None): jobs that have run, to be taken in by a turn
    cdef readonly list unsynced         # whoever has bytes in files and not on the medium yet: Streams, LogSync

cdef class Sink:
    # Takes one message; returns 1, or 0 when this receiver did not take it (closed, no echo, used up). Records
    # work or does a bounded append: never calls Python for a message, never changes the sublist, never closes.
    cdef int deliver(self, Msg* m, Target* t) noexcept nogil

cdef class Request:
    """A message copied out for Python code (an API call, an ack request); handled in the turn."""
    cdef readonly object handler        # callable(Request) -> None
    cdef readonly bytes subject
    cdef readonly bytes reply           # b"": none
    cdef readonly bytes headers         # b"" or the whole NATS/1.0 block
    cdef readonly bytes payload
    cdef readonly object session        # the ClientSession that published, None: the server itself

cdef class PySink(Sink):
    """A sink that copies the message out and has `handler` called with a Request in the turn."""
    cdef Turn turn
    cdef readonly object handler
    cdef int copy_out(self, Msg* m) except -1
