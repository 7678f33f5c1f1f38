"""What a stream and its consumers expect of each other.

A consumer does not hold its stream: it gets the store, and two hooks that the stream sets when the consumer is
added. A consumer of an interest or workqueue stream appends to `settled` the sequences that it needs no more
(acknowledged, terminated, delivered without ack policy) and, at the end of a pump or ack batch that appended
something, calls `settle()` once. A consumer that has caught up calls `wait()`; `wake` then puts it into
Turn.consumers when messages come that it may want, and each wait is good for one wake. A drop is reported to the
consumers whose filters match, also to the one whose settling caused it.

Compiled because drops and wakes are found per message (benchmarks/: scaling).
"""
from libc.stdint cimport uint64_t


cdef class StreamConsumer(Sink):
    """A consumer, as its stream sees it."""

    def __cinit__(self, *arguments):
        self.settled = []

    def __init__(self, str name, tuple filters=()):
        self.name = name
        self.filters = filters

    cpdef void wake(self, uint64_t seq) noexcept:
        """There are new messages; none below `seq` is for this consumer since it called `wait`. 0: perhaps one is."""

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Tell whether the stored message is matched by the filters and not settled yet."""
        return False

    cpdef void dropped(self, uint64_t seq) noexcept:
        """A message that the filters match is gone."""

    cpdef void hand_over(self, size_t most):
        """Tell the stream of what is settled, up to `most` messages."""

    def on_purge(self, uint64_t first_seq) -> None:
        """Everything below `first_seq` is gone, and perhaps more."""

    def close(self) -> None:
        """Do nothing any more; `stop` has to follow."""

    def stop(self, str reason) -> None:
        """The stream closes; `reason` is "deleted" or "shutdown"."""
