"""Arguments of acks and options: delays and percentages."""

from __future__ import annotations

import orjson

from pyjs.base.bounds import DURATION_SIZE_MAX, taken
from pyjs.base.units import parse_duration_ns


def read_delay_ns(argument: bytes) -> int:
    """Return the delay of a nak in ns, or -1 if there is none or it is negative.

    `argument` is the payload of the ack after "-NAK". It has the delay as JSON or as a duration.

    Raises:
        ValueError: the argument is neither valid JSON nor a valid duration.
    """
    text = argument.strip()
    if not text:
        return -1
    if text[:1] != b"{":
        if len(text) > DURATION_SIZE_MAX:
            raise ValueError(f"the delay is longer than {DURATION_SIZE_MAX} bytes")
        return _taken(parse_duration_ns(text.decode("utf-8", "replace")))
    fields = orjson.loads(text)
    delay = fields.get("delay", 0)
    if type(delay) is not int:
        raise ValueError(f"the delay is not a whole number of nanoseconds: {delay!r}")
    return _taken(delay)


def _taken(delay_ns: int) -> int:
    return taken("nak_delay", delay_ns) if delay_ns >= 0 else -1


def read_percent(sample_freq: str) -> int:
    """Return the percentage of acks to sample, 0 to 100; `sample_freq` must be valid."""
    return min(int(sample_freq.removesuffix("%") or 0), 100)
