"""Names of streams and consumers, and the identities of streams."""

from pyjs.base.gotext import time_text
from pyjs.base.nuid import short_hash

NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Return whether a stream or consumer may have this name; its length is not checked."""
    return bool(name) and not NAME_FORBIDDEN.intersection(name)


def identity(created_ns: int) -> bytes:
    """Return a value that identifies the stream among all streams of its name, by its time of creation."""
    return short_hash(time_text(created_ns)).encode()
