"""API levels: the Nats-Required-Api-Level header of requests, and streams that a newer server stored.

The metadata of a stream or consumer states the level that it needs. If that is above this server's level, it is
offline: its files stay, requests get the reason as an error, and it can only be deleted.

Source: ADR-44, and nats-server's jetstream_versioning.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import PyjsError
from pyjs.jetstream.config.declared import from_meta, shape_of
from pyjs.jetstream.config.stream import API_LEVEL, META_REQUIRED_LEVEL, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_HEADER = b"\r\nNats-Required-Api-Level:"
_NUMBER = re.compile(rb"[+-]?[0-9]{1,18}")


def needs_higher_level(headers: bytes) -> bool:
    """Return whether a request needs a higher API level than this server's; a non-numeric value counts as higher."""
    at = headers.find(_HEADER)
    value = headers[at + len(_HEADER) :].partition(b"\r\n")[0].strip(b" ") if at >= 0 else b""
    return bool(value) and _is_higher(value)


def _is_higher(level: bytes) -> bool:
    return _NUMBER.fullmatch(level) is None or int(level) > API_LEVEL


class Offline(NamedTuple):
    """A stored stream that this server cannot serve."""

    config: StreamConfig  # the options that are known
    reason: str
    consumer: str = ""  # the consumer that makes it offline
    consumer_reason: str = ""


class NewerConsumer(PyjsError):
    """A stored consumer needs a higher API level."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"consumer {name!r}: {reason}")
        self.name = name
        self.reason = reason


def level_problem(metadata: Mapping[str, str]) -> str:
    """Return the reason why a stored stream or consumer is offline, or "" if it is not."""
    level = metadata.get(META_REQUIRED_LEVEL, "")
    if not level or not _is_higher(level.encode()):
        return ""
    return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"


def offline_stream(values: Mapping[str, Any]) -> Offline | None:
    """Return the stream in stored metadata as an offline stream, or None if this server can serve it.

    Raises:
        ValueError: the value of an option has the wrong kind.
    """
    unknown = sorted(values.keys() - shape_of(StreamConfig).attributes.keys())
    metadata = values.get("metadata", {})
    problem = level_problem(metadata) if isinstance(metadata, dict) else ""
    if not unknown and not problem:
        return None
    if unknown:
        kind = "unsupported - config error" if problem else "decoding error: json"
        problem = f'{kind}: unknown field "{unknown[0]}"'
    return Offline(
        from_meta(StreamConfig, {key: values[key] for key in values.keys() - set(unknown)}), problem
    )
