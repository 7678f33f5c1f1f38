"""The state of a file store: whether it accepts messages, and the error if not."""

cpdef enum StoreState:
    STORE_RECOVERING        # a start reads the files: changes come from them and are not written again
    STORE_OPEN              # it accepts messages
    STORE_FULL              # no space or no descriptors: messages are refused until there is room again
    STORE_FAILED            # a write failed: messages are refused until a restart
    STORE_SYNC_LOST         # a sync failed: earlier writes may be lost, and later syncs prove nothing
    STORE_CLOSED            # its files are closed

cdef class StoreCondition:
    """The state of one file store, and the error that caused it."""
    cdef readonly StoreState state
    cdef readonly object error              # the error for publishers; None: nothing failed

    cdef inline bint refuses(self) noexcept nogil:
        """Return whether messages are refused."""
        return self.state > STORE_OPEN

    cdef void worsen(self, StoreState state, object error) except *
    cdef void recovered(self) except *
    cdef void resume(self) except *
