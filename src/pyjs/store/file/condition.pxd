"""The state of a file store: whether it accepts messages and, if not, the error."""

cpdef enum StoreState:
    STORE_RECOVERING        # a starting server reads the files: changes come from these and are not written again
    STORE_OPEN              # messages are accepted
    STORE_FULL              # out of space or file descriptors: messages are refused until there is room again
    STORE_FAILED            # a write failed: messages are refused until the server is restarted
    STORE_SYNC_LOST         # a sync failed: earlier writes may be lost, even if later syncs succeed
    STORE_CLOSED            # the files are closed

cdef class StoreCondition:
    """The state of one file store, and the error that caused it."""
    cdef readonly StoreState state
    cdef readonly object error              # the error that publishers get; None: nothing failed

    cdef inline bint refuses(self) noexcept nogil:
        """Return whether messages are refused."""
        return self.state > STORE_OPEN

    cdef void worsen(self, StoreState state, object error) except *
    cdef void recovered(self) except *
    cdef void resume(self) except *
