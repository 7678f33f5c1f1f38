"""Errors that more than one package raises."""

from __future__ import annotations

# Raised by decoders if bytes with a correct checksum have invalid contents.
NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class PyjsError(Exception):
    """The base class of all errors shown to users; the message names the place, the cause and the remedy."""


def reason_of(error: OSError) -> str:
    """Return the operating system's message for an error, in lower case as in Go."""
    return (error.strerror or str(error)).lower()


class StoreFailed(PyjsError):
    """Raised when a write or sync fails; the stream then refuses messages until its store works again.

    The exception's message, for the log, names the directory; `reason`, for clients, does not.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NotNow(PyjsError):
    """Raised when stored bytes cannot be read now, because file descriptors or memory ran out; nothing is lost."""


class CorruptRecord(PyjsError):
    """Raised when stored bytes differ from the bytes that were written."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
