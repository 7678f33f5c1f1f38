"""The fast search for headers that request a trace agrees with the full reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyjs.core.tracing.request import read_request
from pyjs.core.tracing.scan import asks

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LINES = [
    b"k: v",
    b"Nats-Trace-Dest: t",
    b"nats-trace-dest: t",
    b"Nats-Trace-Only: true",
    b"traceparen: t",
    b"T",
]
LINES += [
    b"TRACEPARENT: " + PARENT,
    b"traceparent:" + PARENT,
    b"Nats-Trace-Dest",
    b"traceparent",
    b"Tracep@rent: 1",
]
noise = st.binary(max_size=20).filter(lambda text: b"\n" not in text)
lines = st.lists(st.sampled_from(LINES) | noise, max_size=6)


def test_a_destination_is_found_on_any_line() -> None:
    assert asks(b"NATS/1.0\r\na: b\r\nNats-Trace-Dest: t\r\n\r\n")
    assert asks(b"NATS/1.0\r\nNats-Trace-Dest: t\r\na: b\r\n\r\n")


def test_a_traceparent_is_found_in_any_case() -> None:
    assert asks(b"NATS/1.0\r\ntraceParent: x\r\n\r\n")


def test_other_headers_are_not() -> None:
    assert not asks(b"NATS/1.0\r\nNats-Msg-Id: t\r\nTraceparenT\x1a x\r\n\r\n")
    assert not asks(b"NATS/1.0\r\n\r\n")
    assert not asks(b"")


@given(lines)
def test_every_request_is_found(found: list[bytes]) -> None:
    block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in found) + b"\r\n"

    assert asks(block) or read_request(block) is None
