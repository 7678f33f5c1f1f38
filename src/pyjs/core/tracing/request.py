"""The request for a trace in the headers of a message: destination, trace only, accepted encoding.

A header block is read as nats-server reads it: names are case-sensitive, headers without a value are ignored,
and a name that occurs several times has a list of values. This module knows nothing of accounts and permissions;
trace.py checks those.

Source: ADR-41; probed on nats-server 2.15.1 (tests/conformance/test_tracing.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

DEST = "Nats-Trace-Dest"
ONLY = "Nats-Trace-Only"
HOP = "Nats-Trace-Hop"  # the path of a message through servers
ORIGIN_ACCOUNT = "Nats-Trace-Origin-Account"  # between servers: the publisher's account, if it differs
DISABLED = "trace disabled"  # in place of a destination: an earlier server decided against a trace
FIRST_LINE = b"NATS/1.0\r\n"
SAMPLED = re.compile(r"[+-]?[0-9a-f]{1,2}", re.IGNORECASE | re.ASCII)


@dataclass(slots=True)
class TraceRequest:
    """The headers of a message that request a trace."""

    headers: dict[str, list[str]] = field(default_factory=dict)
    # only a `traceparent` requests the trace; the account's options name the destination
    external: bool = False

    def first(self, name: str) -> str:
        """Return the first value of `name`, or "" if there is none."""
        return self.headers.get(name, [""])[0]

    @property
    def only(self) -> bool:
        """Whether the message is only traced, and not delivered."""
        return not self.external and self.first(ONLY).lower() in ("1", "true", "on")


def read_request(block: bytes) -> TraceRequest | None:
    """Return the request in a header block, or None if the block requests no trace."""
    if not block.startswith(FIRST_LINE):
        return None
    request = TraceRequest()
    named = sampled = False
    for name, value in _headers(block[len(FIRST_LINE) :]):
        if not sampled and name.lower() == "traceparent":
            sampled = _is_sampled(value)
        elif not named and name == DEST:
            if value == DISABLED:
                return None
            named = True
        request.headers.setdefault(name, []).append(value)
    if not named and not sampled:
        return None
    request.external = not named
    return request


def _headers(lines: bytes) -> list[tuple[str, str]]:
    found = []
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if colon and name and value:
            found.append((name.decode("utf-8", "replace"), value.decode("utf-8", "replace")))
    return found


def _is_sampled(parent: str) -> bool:
    """Return whether a W3C `traceparent` has the flag `sampled`."""
    parts = parent.split("-")
    if len(parts) != 4 or len(parts[3]) != 2 or not SAMPLED.fullmatch(parts[3]):
        return False
    flags = int(parts[3], 16)
    return flags < 128 and flags & 1 == 1  # nats-server reads a signed byte


def with_hop(block: bytes, hop: str, origin: str = "") -> bytes:
    """Return `block` with the headers for another server: the hop `hop`, and the account `origin` unless it is ""."""
    kept = [line for line in block[:-4].split(b"\r\n") if not line.startswith(HOP.encode() + b":")]
    added = [f"{ORIGIN_ACCOUNT}: {origin}".encode()] if origin else []
    return b"\r\n".join([*kept, *added, f"{HOP}: {hop}".encode(), b"", b""])


def without_trace(block: bytes) -> bytes:
    """Return `block` with a header that disables the trace, in place of the header that requests it."""
    kept = [line for line in block[:-2].split(b"\r\n") if not line.startswith(DEST.encode() + b":")]
    return b"\r\n".join([*kept[:-1], f"{DEST}: {DISABLED}".encode(), b"", b""])


def disabled_in_place(block: bytes) -> bytes:
    """Return `block`, changed so that a later delivery of the stored message starts no trace."""
    start = block.find(f"\r\n{DEST}:".encode())
    if start < 0:
        return without_trace(block)
    value = start + len(DEST) + 3
    value += block[value : value + 1] == b" "
    end = block.find(b"\r", value)
    return block[:value] + DISABLED.encode() + block[end:]
