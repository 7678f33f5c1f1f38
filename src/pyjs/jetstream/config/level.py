"""The Nats-Required-Api-Level header of requests."""

from __future__ import annotations

from pyjs.jetstream.config.stream import API_LEVEL

_HEADER = b"\r\nNats-Required-Api-Level:"


def needs_higher_level(headers: bytes) -> bool:
    """Return whether a request needs a higher API level than this server's; a value that is not a number does."""
    at = headers.find(_HEADER)
    if at < 0:
        return False
    value = headers[at + len(_HEADER) :].partition(b"\r\n")[0].strip(b" ")
    return not value.isdigit() or int(value) > API_LEVEL
