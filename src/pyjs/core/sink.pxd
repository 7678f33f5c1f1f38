"""Sinks (receivers of messages), and the work lists of one turn."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef uint64_t EVERYWHERE  # the value of Msg.told for a message that another server sent: it goes to no further server

cdef class Turn:
    """The work lists of one turn: sessions with output, streams to commit, consumers to pump, requests to answer.

    A session, stream or consumer is in its list at most once; its `dirty` flag is set while it is there.
    """
    cdef public int64_t now             # ns since the epoch; set by the node at each read and each turn
    cdef public int64_t skew            # wall time minus `now`, ns; set by the node at each turn
    cdef public bint pressure           # a partial turn is due, because output buffers or answers have become large
    cdef public bint crowded            # set when a receiver has much output queued; cleared when read
    cdef public Py_ssize_t unflushed    # sessions whose output the last turn had no time to write
    cdef public bint jammed             # set when much output waits for another server; cleared when read
    # the end of a turn has work: leaderships or replicas of this node have changed since the last report to other
    # servers, or the heartbeats are slow until there is traffic
    cdef public bint reports
    cdef public bint news    # subscriptions have changed since the last report to other servers of the cluster
    cdef public int copies_left         # batches that mirrors and sources may still copy in this turn
    cdef public int64_t input_left  # units of work on input that sessions may still do in this turn, see core.session
    cdef public object trace            # core.tracing.trace.Trace of the message that is being published; None: none
    cdef object sender                  # core.auth.identity.Sender of a request from another worker; None: none
    cdef public uint64_t last_number    # of the last numbered message; starts at a random number in a cluster
    cdef int64_t extra_work             # units of work of the current delivery, in addition to one for each receiver
    cdef readonly object inputs         # deque of ClientSessions with unparsed input, longest waiting first
    cdef readonly list sessions         # ClientSessions with output to flush or subscriptions to retire
    cdef readonly list streams          # Streams with log records to commit or PubAcks to send
    cdef readonly list consumers        # Consumers to pump
    cdef readonly list inboxes          # Streams whose consumers acknowledged messages
    cdef readonly list consensus        # the Consensus of the node, if its groups have work
    cdef readonly list expired          # Consumers unused for their inactive_threshold
    cdef readonly list held    # copiers that found `copies_left` used up; the next turn serves them first
    cdef readonly list requests         # core.sink.Request, for PySinks
    cdef readonly list chores           # core.chore.Chore: work too long for one turn
    cdef readonly list faulted    # (owner, exception) of work that failed unexpectedly; the node repairs the owner
    cdef readonly list upkeep    # stores with files that a thread must remove, compact or recast (encrypt or decrypt)
    cdef readonly list jobs             # core.job.Job: to run in a thread
    cdef readonly list finished         # (Job, Exception or None): finished jobs, for the next turn
    cdef readonly list unsynced         # Streams and LogSyncs with written bytes that are not durable

    cpdef begin_input(self)
    cpdef begin(self, int64_t now, int copies)
    cdef bint is_idle(self) except -1
    # Return the number of `m`; if it has none, it gets the next one. Only in a cluster do numbers of different
    # servers differ.
    cdef uint64_t number_of(self, Msg* m) noexcept nogil

cdef class Sink:
    # Accept one message: return 1, or 0 if this receiver does not accept it (closed, no echo, used up).
    # May only record work or do a bounded append: must not call Python for a message, change the sublist, or
    # close anything.
    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    # Deliver as `deliver` does, and add the result to `trace`. A trace-only message is not
    # delivered.
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1

cdef class RemoteSink(Sink):
    # The receiver of subscriptions at another server; each of their SubStates has a weight.
    cdef int doubts                     # 1: messages to that server may be lost, so queue groups prefer other members

cdef class Request:
    """A message copied out for Python code (an API call, an ack request); handled in the turn."""
    cdef readonly object handler        # callable(Request) -> None, or the steps of a chore
    cdef readonly bytes subject
    cdef readonly bytes reply           # b"": none
    cdef readonly bytes headers         # b"" or the whole NATS/1.0 block
    cdef readonly bytes payload
    cdef readonly object session        # the ClientSession that published, or a Sender; None: the server itself
    cdef readonly uint64_t number       # tells two requests apart at all servers, even if they are equal; 0: none
    cdef readonly bint is_routed        # another server of the cluster, or another worker, has sent the message

cdef class PySink(Sink):
    """A sink that copies the message; in the turn, `handler` is called with the copy as a Request."""
    cdef Turn turn
    cdef readonly object handler
    cdef public object admits  # callable(Request) -> bool: False if the request must not wait; None: all are admitted
    cdef public bint stays_here         # other servers answer the requests of their own clients
    cdef public bytes service    # subject in the system account; b"": the same subject; None: not a service there
    cdef int copy_out(self, Msg* m) except -1
