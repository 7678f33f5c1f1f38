"""The writer of a consumer's state file: it writes the changes of each turn, and sometimes a whole snapshot.

A thread writes a snapshot, and the consumer stops until the snapshot is durable. `rewrite_later` changes the state
from WRITTEN to REWRITING. `rewritten` changes it back to WRITTEN, or to REWRITE_FAILED if the snapshot failed. The
next successful write then changes it from REWRITE_FAILED to WRITTEN.

This module knows nothing of deliveries: jetstream/consumer/record.py encodes the state.
Nothing here runs per message; compiled because it runs once per turn of a consumer (benchmarks/: pull 500).
"""
from pyjs.jetstream.consumer.acks.log cimport StateLog

from functools import partial

from pyjs.base.errors import StoreFailed
from pyjs.jetstream.consumer.record import StateChange, is_log_long, snapshot_of


cdef class StateKeeper:
    """The writer of one consumer's state; without a file it does nothing."""

    def __cinit__(self, file, StateLog changes not None, metadata, log, bint sync_always):
        self.file = file
        self.changes = changes
        self.metadata = metadata
        self.log = log
        self.sync_always = sync_always and file is not None
        self.waiting = []

    @property
    def is_rewriting(self) -> bool:
        """Whether a thread is writing a snapshot, for which the consumer is waiting."""
        return self.state == REWRITING

    cdef bint wants_rewrite(self) noexcept:
        """Return whether a thread must write a snapshot, while the consumer waits."""
        return (self.changes.lost and self.file is not None and self.metadata is not None
                and self.state != REWRITE_FAILED)

    cpdef bint record(self, consumer) except -1:
        """Write the changes since the last call; return False if they were not written."""
        if self.file is None:
            return True
        if self.state == REWRITING:             # the server stops, without waiting for the snapshot
            return False
        try:
            self.append(consumer)
        except (OSError, StoreFailed) as error:
            self.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {error}")
            return False
        if self.state == REWRITE_FAILED:
            self.state = WRITTEN
        return True

    def append(self, consumer) -> None:
        """Write the changes since the last call.

        Raises:
            OSError, StoreFailed: nothing was written.
        """
        delta = self.changes.take()
        if self.changes.lost:
            self.rewrite(consumer)
        elif delta:
            self.changes.lost = True            # until the snapshot is written, later deltas would be useless
            self.file.append(delta)
            self.changes.lost = False
            if is_log_long(self.file, len(consumer.acks.pending)):
                self.rewrite_later(consumer)

    def rewrite(self, consumer) -> None:
        """Write a snapshot before returning.

        Raises:
            OSError, StoreFailed: nothing was written.
        """
        self.changes.take()
        self.changes.lost = True
        self.file.snapshot(snapshot_of(consumer))
        self.changes.lost = False
        self.tell(None)

    def rewrite_later(self, consumer) -> None:
        """Start to write a snapshot; until it is durable, the consumer neither delivers nor answers.

        Raises:
            OSError, StoreFailed: nothing was written.
        """
        if self.metadata is None or self.state == REWRITE_FAILED:
            self.rewrite(consumer)
            return
        state = self.file.next_state(snapshot_of(consumer))
        self.changes.take()
        self.changes.lost = False               # changes made from now on follow the new snapshot
        self.state = REWRITING
        self.metadata.submit(StateChange(state), partial(self.rewritten, consumer, state))

    def rewritten(self, consumer, state, failure) -> None:
        """Continue after a snapshot; if it failed, the next one is written without a thread."""
        self.state = WRITTEN
        if consumer.closed:
            self.tell(StoreFailed(consumer.path, "the consumer was deleted"))
            return
        if failure is None:
            self.file.took(state)
        else:
            self.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {failure}")
            self.changes.lost, self.state = True, REWRITE_FAILED
        if failure is not None or not self.changes.lost:        # otherwise the state has changed since then
            self.tell(failure)
        consumer.resume()

    def when_rewritten(self, done) -> None:
        """Write a snapshot in the next pump, and call `done` when it is durable or has failed.

        The argument of `done` is the error, or None if the snapshot is durable.
        """
        self.changes.lost = True
        self.waiting.append(done)

    def tell(self, failure) -> None:
        """Call each callback that waits for the snapshot; its argument is `failure`, the error or None."""
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(failure)
