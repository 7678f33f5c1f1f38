"""The state of a file store: whether it accepts messages and, if not, the error.

    RECOVERING --recovered--> OPEN <--resume-- FULL
    RECOVERING, OPEN --worsen--> FULL --worsen--> FAILED --worsen--> SYNC_LOST --worsen--> CLOSED

`worsen` may skip states but never goes back: a full disk does not change the state of a store whose sync has failed,
and a closed store stays closed. Only FULL can end, by `resume` after a successful probe write; a failed write or sync
is permanent.

This module knows nothing of files. Compiled: every append reads it (benchmarks/, JetStream async publish).
"""
cdef class StoreCondition:
    def __init__(self) -> None:
        self.state = STORE_RECOVERING

    cdef void worsen(self, StoreState state, object error) except *:
        """Replace the error that publishers get, and change to `state` if it is worse than the current state."""
        assert state > STORE_OPEN
        self.error = error
        self.state = max(self.state, state)

    cdef void recovered(self) except *:
        """Begin to accept messages, unless an operation failed during recovery."""
        if self.state == STORE_RECOVERING:
            self.state = STORE_OPEN

    cdef void resume(self) except *:
        """Accept messages again."""
        assert self.state == STORE_FULL
        self.state = STORE_OPEN
        self.error = None
