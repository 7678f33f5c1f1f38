"""Errors that more than one package raises."""

from __future__ import annotations

# Errors from decoding bytes whose checksum is right but whose contents are invalid.
NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class PyjsError(Exception):
    """The base of all errors shown to users; the text names the place, the cause and the remedy."""


def reason_of(error: OSError) -> str:
    """Return the system's text of an error, in lower case like Go's."""
    return (error.strerror or str(error)).lower()


class StoreFailed(PyjsError):
    """A write or sync failed: the stream refuses messages until its store works again.

    The text names the directory, for the log; `reason` does not, for clients.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NotNow(PyjsError):
    """Stored bytes cannot be read at present, for lack of descriptors or memory; nothing is lost."""


class CorruptRecord(PyjsError):
    """Stored bytes differ from those that were written."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
