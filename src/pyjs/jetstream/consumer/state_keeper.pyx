"""Keeps the state of a consumer in its file: what changed in a turn, and now and then the whole state.

A whole state is written by a thread, and the consumer stands still until it is durable: REWRITING, from KEPT, by
`rewrite_later`; back to KEPT, or to REWRITE_FAILED, by `rewritten`. What was written well at once leads from
REWRITE_FAILED to KEPT.

Knows nothing of deliveries: what is written is what jetstream/consumer/record.py makes of a consumer.
Nothing here runs per message; compiled because every turn of a consumer asks (benchmarks/: pull 500).
"""
from pyjs.jetstream.consumer.acks.log cimport StateLog

from functools import partial

from pyjs.base.errors import StoreFailed
from pyjs.jetstream.consumer.record import StateChange, is_log_long, snapshot_of


cdef class StateKeeper:
    """Keeps the state of one consumer, if it has a file."""

    def __cinit__(self, file, StateLog changes not None, metadata, log, bint sync_always):
        self.file = file
        self.changes = changes
        self.metadata = metadata
        self.log = log
        self.sync_always = sync_always and file is not None

    cdef bint wants_rewrite(self) noexcept:
        """Tell whether the consumer has to stand still for a whole state, before anything else happens."""
        return (self.changes.lost and self.file is not None and self.metadata is not None
                and self.state != REWRITE_FAILED)

    cpdef bint record(self, consumer) except -1:
        """Write what changed since the last call; False: it could not be written."""
        if self.file is None:
            return True
        if self.state == REWRITING:             # the server ends without waiting for it
            return False
        try:
            self.append(consumer)
        except (OSError, StoreFailed) as error:
            self.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {error}")
            return False
        if self.state == REWRITE_FAILED:
            self.state = KEPT
        return True

    def append(self, consumer) -> None:
        """Write what changed since the last call.

        Raises:
            OSError, StoreFailed: it could not be written.
        """
        delta = self.changes.take()
        if self.changes.lost:
            self.rewrite(consumer)
        elif delta:
            self.changes.lost = True            # until it is in the file: what follows makes no sense without it
            self.file.append(delta)
            self.changes.lost = False
            if is_log_long(self.file, len(consumer.acks.pending)):
                self.rewrite_later(consumer)

    def rewrite(self, consumer) -> None:
        """Write the whole state, here and now.

        Raises:
            OSError, StoreFailed: it could not be written.
        """
        self.changes.take()
        self.changes.lost = True
        self.file.snapshot(snapshot_of(consumer))
        self.changes.lost = False

    def rewrite_later(self, consumer) -> None:
        """Start a rewrite of the whole state; the consumer delivers, settles and answers nothing until it ends.

        Raises:
            OSError, StoreFailed: it could not be written.
        """
        if self.metadata is None or self.state == REWRITE_FAILED:
            self.rewrite(consumer)
            return
        state = self.file.next_state(snapshot_of(consumer))
        self.changes.take()
        self.changes.lost = False               # what comes now goes behind the new state
        self.state = REWRITING
        self.metadata.submit(StateChange(state), partial(self.rewritten, consumer, state))

    def rewritten(self, consumer, state, failure) -> None:
        """Go on behind the new state; if it is not durable the next one is written at once."""
        self.state = KEPT
        if consumer.closed:
            return
        if failure is None:
            self.file.took(state)
        else:
            self.log.error(f"JetStream consumer '{consumer.path}' state can not be written: {failure}")
            self.changes.lost, self.state = True, REWRITE_FAILED
        consumer.resume()
