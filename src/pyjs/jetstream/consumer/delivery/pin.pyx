"""The pin of a priority group: the one client that is served as long as it asks again in time.

A pin has an id, which the client repeats in its requests, and a number, which the waiting requests carry so that
they are compared without texts. Knows nothing of requests and advisories.

Compiled because requests are compared with it per message (benchmarks/: pull 500).
Source: ADR-42.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy


cdef class Pin:
    """The pin of one consumer; nobody has it at first."""

    def __cinit__(self):
        self.id = b""
        self.group = ""

    def assign(self, bytes pin_id, str group, int64_t now) -> None:
        """Give a new pin to a client of `group`."""
        assert len(pin_id) == PIN_SIZE
        self.assigned += 1
        self.number = self.assigned
        self.id, self.group = pin_id, group
        memcpy(self.text, <const char*> pin_id, PIN_SIZE)
        self.pinned_at = now
        self.extend(now)

    def extend(self, int64_t now) -> None:
        """Let the client that has the pin keep it: it asked again."""
        self.until = now + self.wait_ns

    def clear(self) -> None:
        """Let nobody have a pin."""
        self.number, self.id, self.pinned_at = 0, b"", 0

    cdef bint serves(self, uint64_t number) noexcept nogil:
        """Tell whether a request with this number (0: it names no pin) may be served."""
        return self.number == 0 or number == self.number
