"""How much of anything may come in: the ranges of numbers, times, depths and lengths, each stated once.

Two questions are asked of a value from outside. Its reader asks whether the field takes it at all: a number kind has
the range of its type in nats-server (`NUMBERS`), and what is outside of it is refused with the peer's error. The
engine asks how much of it counts: many fields take more than a C integer holds once it is added to a time, and no
clock will ever tell the difference (`TAKEN`). The configuration keeps, shows and stores the value as it was given;
what the engine copies into its own attributes went through `taken`.

Readers and tests/fuzz/test_border.py use the same tables: tests/support/border.py lists which field is of which kind.

Source: types of nats-server's API structures; accepted values probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import NamedTuple

NS_PER_S = 1_000_000_000


class Range(NamedTuple):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    def clamp(self, value: int) -> int:
        """Return the number of the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)


INT32 = Range(-(1 << 31), (1 << 31) - 1)
INT64 = Range(-(1 << 63), (1 << 63) - 1)
UINT32 = Range(0, (1 << 32) - 1)
UINT64 = Range(0, (1 << 64) - 1)

# What the number kinds of a request take, by their names in error texts.
NUMBERS = {"int": INT64, "int64": INT64, "int32": INT32, "uint64": UINT64, "time.Duration": INT64}

DURATION_SIZE_MAX = 1000  # of one in a header or an ack, in bytes: each of its parts costs a microsecond
JSON_DEPTH_MAX = 10_000  # objects and lists around each other
TIME_NS = Range(-62_167_219_200 * NS_PER_S, 253_402_300_800 * NS_PER_S - 1)  # the years 0 to 9999
SEQ_MAX = UINT64.high - 1  # of a message: the sequence behind the last one is a number too
SPAN_NS = Range(0, 1 << 61)  # 73 years: two of them added to a time of this century fit in 64 bits

# What the engine takes of a field, where that is less than the field's kind allows.
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
    "expires": Range(-1, SPAN_NS.high),  # below 0 it has ended already
    "pull_heartbeat": Range(
        1_000_000, SPAN_NS.high
    ),  # shorter ones would keep the server busy with nothing else
    "pause_until": Range(0, INT64.high),
    "max_deliver": UINT32,  # 0: no limit
    "max_waiting": Range(0, INT32.high),
    "batch": Range(INT32.low, INT32.high),
    "rate_limit_bps": Range(0, 10**15),
}


def taken(field: str, value: int) -> int:
    """Return what the engine uses for the value of a field."""
    return TAKEN[field].clamp(value)


def wrapped_ns(time_ns: int) -> int:
    """Return a time as the 64 bits that nats-server compares it in: one before 1677 or after 2262 is another."""
    return (time_ns + (1 << 63)) % (1 << 64) - (1 << 63)
