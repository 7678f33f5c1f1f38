"""The Nats-Required-Api-Level header of requests."""

from __future__ import annotations

from pyjs.jetstream.config.stream import API_LEVEL

_HEADER = b"\r\nNats-Required-Api-Level:"


def needs_higher_level(headers: bytes) -> bool:
    """Tell whether a request asks for more than this server implements; what is no number counts as more."""
    at = headers.find(_HEADER)
    if at < 0:
        return False
    value = headers[at + len(_HEADER) :].partition(b"\r\n")[0].strip(b" ")
    return not value.isdigit() or int(value) > API_LEVEL
