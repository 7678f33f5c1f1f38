"""Bounds of input values: the ranges of numbers, times, depths and lengths, each range stated once.

An input value has two ranges:

- `NUMBERS`: the range that the reader accepts, which is the range of the type in nats-server. A value outside it is
  refused with nats-server's error.
- `TAKEN`: the range that the engine uses. In many fields, the sum of an accepted number and a time overflows a C
  integer. So the configuration stores and shows the given value, but the engine uses `taken(field, value)`.

Readers and tests/fuzz/test_border.py use the same tables: tests/support/border.py lists the kind of each field.

Source: types of nats-server's API structures; accepted values probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import NamedTuple

NS_PER_S = 1_000_000_000


class Range(NamedTuple):
    """A range of whole numbers that includes `low` and `high`."""

    low: int
    high: int

    def clamp(self, value: int) -> int:
        """Return the number in the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)


INT32 = Range(-(1 << 31), (1 << 31) - 1)
INT64 = Range(-(1 << 63), (1 << 63) - 1)
UINT32 = Range(0, (1 << 32) - 1)
UINT64 = Range(0, (1 << 64) - 1)

# Accepted range for each kind of number in a request; the kinds have the names used in error texts.
NUMBERS = {"int": INT64, "int64": INT64, "int32": INT32, "uint64": UINT64, "time.Duration": INT64}

# bytes of a duration in a header or an ack; parsing takes a microsecond for each part of the duration
DURATION_SIZE_MAX = 1000
JSON_DEPTH_MAX = 10_000  # maximum depth of nested objects and lists
TIME_NS = Range(-62_167_219_200 * NS_PER_S, 253_402_300_800 * NS_PER_S - 1)  # the years 0 to 9999
SEQ_MAX = UINT64.high - 1  # maximum seq of a message: last_seq + 1 must fit in 64 bits
SPAN_NS = Range(0, 1 << 61)  # 73 years: two of them added to a time of this century fit in 64 bits

# The ranges that the engine uses, for fields whose kind has a larger range.
TAKEN = {
    "max_age": SPAN_NS,
    "duplicate_window": SPAN_NS,
    "subject_delete_marker_ttl": SPAN_NS,
    "message_ttl": SPAN_NS,  # Nats-TTL
    "ack_wait": SPAN_NS,
    "backoff": SPAN_NS,
    "nak_delay": SPAN_NS,
    "inactive_threshold": SPAN_NS,
    "idle_heartbeat": SPAN_NS,
    "priority_timeout": SPAN_NS,
    "expires": Range(-1, SPAN_NS.high),  # negative: the request has already expired
    # a shorter heartbeat would use all of the server's time
    "pull_heartbeat": Range(1_000_000, SPAN_NS.high),
    "pause_until": Range(0, INT64.high),
    "max_deliver": UINT32,  # 0: no limit
    "max_waiting": Range(0, INT32.high),
    "batch": Range(INT32.low, INT32.high),
    "rate_limit_bps": Range(0, 10**15),
}


def taken(field: str, value: int) -> int:
    """Return `value`, or the nearest value in the range that the engine uses for `field`."""
    return TAKEN[field].clamp(value)


def wrapped_ns(time_ns: int) -> int:
    """Return a time in ns wrapped to signed 64 bits, as in nats-server.

    Times from 1677 to 2262 do not change.
    """
    return (time_ns + (1 << 63)) % (1 << 64) - (1 << 63)
