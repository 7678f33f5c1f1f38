"""The errors of this package.

Each message names the place (address, stream or option), the cause and the remedy. All errors can be pickled,
because Spark carries a worker's error to the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class SparkError(Exception):
    """The base class of all errors of this package."""


class ServerUnreachable(SparkError):
    """Raised when no server of the list accepts a connection; the message lists each address with the reason."""


class ConnectionLost(SparkError):
    """Raised when a connection ends or becomes silent; the caller may repeat the work on a new connection."""


class AccessDenied(SparkError):
    """Raised when the server refuses the credentials, or the user may not publish or subscribe to a subject."""


class BadCredentials(SparkError):
    """Raised when a secret, seed or certificate is unreadable or invalid."""


class RequestTimeout(SparkError):
    """Raised when a request is not answered in time."""


class NoResponders(SparkError):
    """Raised when the subject of a request has no subscriber (status 503)."""


class ProtocolError(SparkError):
    """Raised when the server sends an invalid or unknown frame."""


class DataLoss(SparkError):
    """Raised when messages that a read should return are no longer in the stream, or the stream was re-created."""


class ReadStalled(SparkError):
    """Raised when a read gets no message within its idle timeout although the server reports more."""


class SeqTooLarge(SparkError):
    """Raised when a sequence is above 2^63-1, the maximum of Spark's column type."""


class ApiError(SparkError):
    """Raised when JetStream answers a request with an error."""

    def __init__(self, code: int, err_code: int, text: str) -> None:
        super().__init__(code, err_code, text)
        self.code = code
        self.err_code = err_code
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (code {self.code}, err_code {self.err_code})"


class OptionError(SparkError):
    """Raised when an option is unknown or missing, or its value is not allowed."""


def no_consumer(stream: str) -> OptionError:
    """Return the error for readMode=consumer on a work queue or interest stream."""
    return OptionError(
        f"option readMode=consumer: the stream {stream} is a work queue or interest stream, and its consumers remove "
        "what they read; use readMode=auto or direct, which remove nothing"
    )


class SchemaError(SparkError):
    """Raised when a schema has unknown columns or types."""


class StreamMissing(SparkError):
    """Raised when a stream does not exist on the server."""


class RowRefused(SparkError):
    """Raised when a row cannot be a message because of its subject, headers, id or size; no part of it was sent."""


class PublishFailed(SparkError):
    """Raised when the server refuses a message or does not acknowledge it in time, and retries fail too."""


class NotAcknowledged(PublishFailed):
    """Raised when the connection is lost, or the server stops answering, before all messages are acknowledged."""


class ReplayDiffers(SparkError):
    """Raised when a repeated batch differs from its first attempt in rows or partitions, or cannot be compared."""


class WriterReplaced(SparkError):
    """Raised when another attempt at the same rows has begun; the current attempt must stop writing."""


class SparkMissing(SparkError):
    """Raised when Spark, or a package or program that Spark needs, is not installed on this machine."""


class BadStore(SparkError):
    """Raised when a directory is not a server's store, is damaged, or cannot be read by this version."""


class StoreKeyNeeded(SparkError):
    """Raised when files of a store directory are encrypted and their key was not given."""


class BulkRefused(SparkError):
    """Raised when the server offers no bulk reads, or the stream does not allow them."""


def is_passing(error: SparkError) -> bool:
    """Return whether the same request may succeed if it is repeated soon."""
    if isinstance(error, ApiError):
        return error.code == 503
    return isinstance(error, ConnectionLost | RequestTimeout | NoResponders | ServerUnreachable)


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for an unknown name.

    The hint names the most similar known name. If no name is similar, it is `otherwise`, or the list of all known
    names if `otherwise` is empty. If `known` is a mapping, its keys are the names in lower case, and its values the
    names to show.
    """
    shown = known if isinstance(known, Mapping) else {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), shown, n=1, cutoff=0.5)
    return (
        f"did you mean {shown[near[0]]}?" if near else otherwise or f"there are {', '.join(shown.values())}"
    )
