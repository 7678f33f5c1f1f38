"""Message TTLs: parsing of Nats-TTL headers, and the headers of markers that replace expired subjects.

This module handles only strings; aging.pyx decides when a message expires.

Source: ADR-43; forms and headers probed on nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.base.bounds import DURATION_SIZE_MAX, taken, wrapped_ns
from pyjs.base.gotext import duration_text
from pyjs.base.units import parse_duration_ns
from pyjs.jetstream.stream.features.headers import value_of

NS_PER_S = 1_000_000_000
NEVER = -1


WRAP_DIGITS = 64  # these last digits of a number determine its last 64 bits, since 2**64 divides 10**64


def parse_ttl_ns(text: bytes) -> int | None:
    """Return a Nats-TTL value as ns, rounded down to whole seconds, or None if it is invalid.

    A valid value is a duration of at least a second, a number of seconds, or `never`. The result is NEVER for
    `never`, and 0 for zero seconds, which means no TTL. As in nats-server, only the last 64 bits of a number count;
    if they are those of a negative number, the value is invalid. A value that is too large for nanoseconds becomes
    the longest possible time, while nats-server lets the message expire at once.
    """
    if len(text) > DURATION_SIZE_MAX:
        return _seconds_ns(text)
    shown = text.decode("utf-8", "replace")
    if shown.lower() == "never":
        return NEVER
    try:
        ns = parse_duration_ns(shown)
    except ValueError:
        return _seconds_ns(text)
    return taken("message_ttl", ns - ns % NS_PER_S) if ns >= NS_PER_S else None


def _seconds_ns(text: bytes) -> int | None:
    if not text.isdigit():
        return None
    seconds = wrapped_ns(int(text[-WRAP_DIGITS:]))
    return None if seconds < 0 else taken("message_ttl", seconds * NS_PER_S)


def marker_headers(ttl_ns: int) -> bytes:
    """Return the header block of the marker that replaces the last, expired message of a subject."""
    shown = duration_text(ttl_ns).encode()
    return b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n" % shown


def is_marker(headers: bytes) -> bool:
    """Return whether a message is a marker: it has a Nats-Marker-Reason, or is a key-value client's purge marker."""
    return bool(value_of(headers, b"Nats-Marker-Reason")) or value_of(headers, b"KV-Operation") == b"PURGE"


def with_least_ttl(headers: bytes, least_ns: int) -> bytes | None:
    """Return `headers` with Nats-TTL raised to `least_ns` in whole seconds, or None if it need not be raised.

    The first TTL counts; if it is raised, it replaces all others, as in nats-server
    (tests/conformance/scenarios/ttl/raised_in_several_headers.txt).
    """
    least_ns -= least_ns % NS_PER_S
    _, name, rest = headers.partition(b"\r\nNats-TTL:")
    value = rest.partition(b"\r\n")[0]
    ttl_ns = parse_ttl_ns(value.strip(b" ")) if name else None
    if not ttl_ns or ttl_ns == NEVER or ttl_ns >= least_ns:
        return None
    others = (line for line in headers[:-2].split(b"\r\n") if not line.startswith(b"Nats-TTL:"))
    return b"%bNats-TTL: %d\r\n\r\n" % (b"\r\n".join(others), least_ns // NS_PER_S)
