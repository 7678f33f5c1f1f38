"""Checks of rare headers, at the points at which nats-server makes them.

The compiled ingest calls this module only for messages with such a header, so its speed does not matter.
The order of the checks decides which error a publisher gets (tests/conformance/scenarios/publish).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.stream.features.counting import increment_error
from pyjs.jetstream.stream.features.headers import value_of
from pyjs.jetstream.stream.features.schedule import schedule_refusal
from pyjs.jetstream.stream.message_ttl import parse_ttl_ns

if TYPE_CHECKING:
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.errcodes import ApiError
    from pyjs.jetstream.stream.features.schedule import View


def later_refusal(
    point: int, config: StreamConfig, headers: bytes, payload_size: int, subject: bytes, view: View
) -> ApiError | None:
    """Return the error for a header, or None if the checks at this `point` find none.

    `point` selects the checks by their place in nats-server: 0 is before any condition, 1 is after the check of the
    expected stream, 2 is after the checks of the expected sequences, and 3 is just before storing.

    Raises:
        ApiError, NotNow: a message that a check needs cannot be read, as for `View.last_headers`.
    """
    if point == 0:
        return increment_error(headers, payload_size, config.allow_msg_counter)
    if point == 1:
        return _refused_after_stream(headers)
    if point == 2:
        return _refused_after_sequences(config, headers, subject, view)
    return _refused_last(headers)


def _refused_after_stream(headers: bytes) -> ApiError | None:
    """Return the error for a TTL in a stream without `allow_msg_ttl`, or None; checked after the expected stream."""
    ttl = value_of(headers, b"Nats-TTL")
    return errcodes.MESSAGE_TTL_DISABLED.error() if ttl and parse_ttl_ns(ttl) else None


def _refused_after_sequences(
    config: StreamConfig, headers: bytes, subject: bytes, view: View
) -> ApiError | None:
    """Return the error for a schedule or a forged source header, or None; checked after the expected sequences."""
    if error := schedule_refusal(config, headers, subject, view):
        return error
    if value_of(headers, b"Nats-Stream-Source"):
        return errcodes.MESSAGE_SOURCE_HDR_NOT_ALLOWED.error()
    return None


def _refused_last(headers: bytes) -> ApiError | None:
    """Return the error for an invalid TTL, or None; checked just before storing."""
    ttl = value_of(headers, b"Nats-TTL")
    return errcodes.MESSAGE_TTL_INVALID.error() if ttl and parse_ttl_ns(ttl) is None else None
