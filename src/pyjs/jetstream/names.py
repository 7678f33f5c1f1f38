"""Names of streams and consumers, and the identities of streams."""

from pyjs.base.gotext import time_text
from pyjs.base.nuid import short_hash

NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Return whether a stream or consumer may have this name; its length is not checked."""
    return bool(name) and not NAME_FORBIDDEN.intersection(name)


def identity(created_ns: int) -> bytes:
    """Return a value derived from a stream's creation time; it differs for other streams with the same name."""
    return short_hash(time_text(created_ns)).encode()


DIRECT_QUEUE = b"_zzz_"  # queue group in which the replicas of a stream and its mirrors share direct gets


def stream_in(subject: str, domain: str) -> str:
    """Return the name of the stream in the subject of an ack, pull request or direct get; "" for other subjects."""
    tokens = subject.split(".")
    if len(tokens) < 5 or tokens[0] != "$JS":
        return ""
    if tokens[1] == "ACK":
        return tokens[2] if len(tokens) == 9 else tokens[4]
    if domain and tokens[1] == domain:
        del tokens[1]
    if tokens[1:4] == ["API", "DIRECT", "GET"] and len(tokens) > 4:
        return tokens[4]
    return tokens[5] if tokens[1:5] == ["API", "CONSUMER", "MSG", "NEXT"] and len(tokens) > 5 else ""
