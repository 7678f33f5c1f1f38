"""Whether a file store takes messages, and if not, why."""

cpdef enum StoreState:
    STORE_RECOVERING        # it is read back: changes come from the files, and are not written to them
    STORE_OPEN              # it takes messages
    STORE_FULL              # no space or no descriptors: messages are refused until there is room again
    STORE_FAILED            # a write failed: messages are refused until a restart
    STORE_SYNC_LOST         # a sync failed: what it held may be lost, and no sync is believed any more
    STORE_CLOSED            # its files are given back

cdef class StoreCondition:
    """The state of one file store, and the error of whatever was the last to change it for the worse."""
    cdef readonly StoreState state
    cdef readonly object error              # what a publisher is told; None: nothing failed

    cdef inline bint refuses(self) noexcept nogil:
        """Whether messages are refused."""
        return self.state > STORE_OPEN

    cdef void worsen(self, StoreState state, object error) except *
    cdef void recovered(self) except *
    cdef void resume(self) except *
