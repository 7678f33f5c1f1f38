"""API levels: the Nats-Required-Api-Level header of requests, and the level in the metadata of streams and consumers.

A stream or consumer that needs a higher level than this server has is offline (jetstream/config/offline.py).

Source: ADR-44, and nats-server's jetstream_versioning.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

API_LEVEL = 5
META_VERSION, META_LEVEL, META_REQUIRED_LEVEL = "_nats.ver", "_nats.level", "_nats.req.level"

_HEADER = b"\r\nNats-Required-Api-Level:"
_NUMBER = re.compile(rb"[+-]?[0-9]{1,18}")


def needs_higher_level(headers: bytes) -> bool:
    """Return whether a request needs a higher API level than this server has, or a level that is not a number."""
    at = headers.find(_HEADER)
    value = headers[at + len(_HEADER) :].partition(b"\r\n")[0].strip(b" ") if at >= 0 else b""
    return bool(value) and _is_higher(value)


def _is_higher(level: bytes) -> bool:
    return _NUMBER.fullmatch(level) is None or int(level) > API_LEVEL


def level_problem(metadata: Mapping[str, str]) -> str:
    """Return the reason why a stored stream or consumer with this metadata is offline, or "" if it is not."""
    level = metadata.get(META_REQUIRED_LEVEL, "")
    if not level or not _is_higher(level.encode()):
        return ""
    return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"
