"""What a stream and its consumers expect of each other.

A consumer does not hold its stream: it has the store, and the stream's inbox from `add_consumer` on. It puts itself
into `settled` when it needs messages no more (acknowledged, terminated, delivered without ack policy) and the stream
asks; the stream takes their sequences in its turn, behind the pumps (`Stream.read_inbox`). It puts itself into
`waiting` when it has caught up; `wake` then puts it into Turn.consumers when messages come that it may want, and each
wait is good for one wake. A drop is reported to the consumers whose filters match, also to the one that settled.

Compiled because drops and wakes are found per message (benchmarks/: scaling).
"""
from libc.stdint cimport uint64_t


cdef class StreamConsumer(Sink):
    """A consumer, as its stream sees it."""

    def __init__(self, str name, tuple filters=()):
        self.name = name
        self.filters = filters

    cpdef void wake(self, uint64_t seq) noexcept:
        """There are new messages; none below `seq` is for this consumer since it waits. 0: perhaps one is."""

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Tell whether the stored message is matched by the filters and not settled yet."""
        return False

    cpdef void dropped(self, uint64_t seq) noexcept:
        """A message that the filters match is gone."""

    cpdef list take_settled(self, size_t most):
        """Return sequences that it needs no more, up to `most`; those are settled from then on."""
        return []

    def on_purge(self, uint64_t first_seq) -> None:
        """Everything below `first_seq` is gone, and perhaps more."""

    def close(self) -> None:
        """Do nothing any more; `stop` has to follow."""

    def stop(self, str reason) -> None:
        """The stream closes; `reason` is "deleted" or "shutdown"."""


cdef class StreamInbox:
    """What the consumers of one stream tell it."""

    def __cinit__(self, Turn turn, object stream):
        self.turn = turn
        self.stream = stream
        self.waiting, self.settled = {}, {}

    cpdef void caught_up(self, StreamConsumer consumer):
        """Have it woken once when there are new messages for it."""
        self.waiting[consumer] = None

    cpdef void has_settled(self, StreamConsumer consumer):
        """Have the stream take what it has settled."""
        self.settled[consumer] = None
        self.queue()

    cdef int queue(self) except -1:
        """Ask the turn to let the stream read."""
        if not self.queued and self.stream is not None:
            self.queued = True
            self.turn.inboxes.append(self.stream)
        return 0

    cdef StreamConsumer next_settled(self):
        """Return the consumer that has waited longest with settled messages, None: there is none."""
        for consumer in self.settled:
            del self.settled[consumer]
            return consumer

    def join(self, StreamConsumer consumer) -> None:
        """Let a consumer tell the stream."""
        consumer.inbox = self

    def leave(self, StreamConsumer consumer) -> None:
        """Undo `join`."""
        consumer.inbox = None
        self.waiting.pop(consumer, None)
        self.settled.pop(consumer, None)

    def close(self) -> None:
        """Let consumers and inbox know nothing of the stream: each would keep it in a cycle."""
        self.stream = None
