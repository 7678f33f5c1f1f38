"""Errors that more than one room raises."""

from __future__ import annotations

# What taking apart raises whose bytes are whole, by their checksum, and make no sense.
NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class PyjsError(Exception):
    """Base of every error that a user may see; its text says where, what and what to do."""


def reason_of(error: OSError) -> str:
    """Return what the system says of an error, in lower case as Go writes it."""
    return (error.strerror or str(error)).lower()


class StoreFailed(PyjsError):
    """A write or sync failed: the stream takes no more messages until it can be trusted again.

    The text names the directory, for the log; `reason` does not, for clients.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NotNow(PyjsError):
    """What is stored cannot be read at present, for want of descriptors or memory; nothing is lost."""


class CorruptRecord(PyjsError):
    """Stored bytes are not what was written."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
