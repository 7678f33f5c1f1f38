"""Whether a file store takes messages, and if not, why.

    RECOVERING --recovered--> OPEN <--resume-- FULL
    RECOVERING, OPEN --worsen--> FULL --worsen--> FAILED --worsen--> SYNC_LOST --worsen--> CLOSED

`worsen` may leave states out, and never goes back: a full disk is no news after a failed sync, and a closed store
stays closed. Only FULL gets better, by `resume`, after a probe write succeeded; a failed write or sync is for good.

Knows nothing of files. Compiled because every append asks it (benchmarks/, JetStream async publish).
"""
cdef class StoreCondition:
    def __init__(self) -> None:
        self.state = STORE_RECOVERING

    cdef void worsen(self, StoreState state, object error) except *:
        """Go to `state`, if that is worse than the one now; `error` is what publishers are told from now on."""
        assert state > STORE_OPEN
        self.error = error
        self.state = max(self.state, state)

    cdef void recovered(self) except *:
        """Take messages from now on, unless something failed meanwhile."""
        if self.state == STORE_RECOVERING:
            self.state = STORE_OPEN

    cdef void resume(self) except *:
        """Take messages again."""
        assert self.state == STORE_FULL
        self.state = STORE_OPEN
        self.error = None
