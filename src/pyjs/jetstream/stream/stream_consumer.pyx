"""The interface between a stream and its consumers.

A consumer refers to the store and, after `add_consumer`, to the stream's inbox, but not to the stream. It adds itself
to `acknowledged` when it no longer needs some messages (because they were acknowledged, terminated, or delivered with
ack policy none) and the stream needs to know that. The stream takes the sequences of these messages in its turn,
after the pumps (`Stream.read_inbox`). A consumer adds itself to `waiting` when it has no more messages. As soon as a
message may match, `wake` adds it to Turn.consumers; this ends the wait. A removal is reported to all consumers whose
filters match, even to the one that acknowledged the message.

Compiled because removals and new messages are reported per message (benchmarks/: scaling).
"""
from libc.stdint cimport uint64_t


cdef class StreamConsumer(Sink):
    """The part of a consumer that its stream uses."""

    def __init__(self, str name, tuple filters=()):
        self.name = name
        self.filters = filters

    cpdef void wake(self, uint64_t seq) noexcept:
        """Handle new messages. `seq` is the first match since the consumer began to wait, or 0 if unknown."""

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Return whether a stored message matches the filters and is not acknowledged yet.

        This is False unless a subclass overrides the method.
        """
        return False

    cpdef void dropped(self, uint64_t seq) noexcept:
        """Handle the removal of a message that matches the filters."""

    cpdef list take_acknowledged(self, size_t most):
        """Remove and return up to `most` acknowledged sequences. There are none unless a subclass overrides this."""
        return []

    def clock_stepped(self) -> None:
        """Recompute the timers for wall times after the wall clock has been set."""

    def on_purge(self, uint64_t first_seq) -> None:
        """Handle a purge, after which no message below `first_seq` matches; it may have removed others."""

    def close(self) -> None:
        """Stop all work; `stop` must be called next."""

    def stop(self, str reason) -> None:
        """Handle the end of the stream or of this consumer; `reason` is, for example, "deleted" or "shutdown"."""


cdef class StreamInbox:
    """Notices from the consumers of a stream, which the stream reads in its turn."""

    def __cinit__(self, Turn turn, object stream):
        self.turn = turn
        self.stream = stream
        self.waiting, self.acknowledged = {}, {}

    cpdef void caught_up(self, StreamConsumer consumer):
        """Record that `consumer` is waiting. It is woken as soon as there may be new messages for it."""
        self.waiting[consumer] = None

    cpdef void has_acknowledged(self, StreamConsumer consumer):
        """Queue `consumer`, so that the stream takes its acknowledged sequences."""
        self.acknowledged[consumer] = None
        self.queue()

    cdef int queue(self) except -1:
        """Queue the stream, so that it reads the inbox in this turn."""
        if not self.queued and self.stream is not None:
            self.queued = True
            self.turn.inboxes.append(self.stream)
        return 0

    cdef StreamConsumer next_acknowledged(self):
        """Remove and return the consumer that was queued first, or None if there is none."""
        for consumer in self.acknowledged:
            del self.acknowledged[consumer]
            return consumer

    def join(self, StreamConsumer consumer) -> None:
        """Connect a consumer to this inbox."""
        consumer.inbox = self

    def leave(self, StreamConsumer consumer) -> None:
        """Disconnect a consumer from this inbox."""
        consumer.inbox = None
        self.waiting.pop(consumer, None)
        self.acknowledged.pop(consumer, None)

    def close(self) -> None:
        """Break the reference cycles with the consumers and the stream."""
        self.stream = None
