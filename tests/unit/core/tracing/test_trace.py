"""Trace requests in the headers of a message that another server forwards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fuzz.test_route_frames import message_frame
from tests.support.simnet import SimNet, SimServer
from tests.unit.cluster.test_route import route_of

from pyjs.core.tracing.trace import Trace


@pytest.fixture
def server() -> SimServer:
    return SimNet(1).start("a")


def traces_of(
    server: SimServer, monkeypatch: pytest.MonkeyPatch, headers: bytes
) -> tuple[list[Any], list[bytes]]:
    """Return the destinations of the traces, and the messages that a subscriber gets."""
    traces: list[Trace] = []
    monkeypatch.setattr(server.node, "send_trace", traces.append)
    client = server.client()
    client.send(b"SUB x 1\r\n")
    route_of(server).receive_data(message_frame(b"x", b"", b"NATS/1.0\r\n%b\r\n" % headers, b"hi"))
    server.wake()
    return [trace.dest for trace in traces], client.payloads()


def test_a_message_of_another_server_is_traced_here_too(
    server: SimServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dests, payloads = traces_of(server, monkeypatch, b"Nats-Trace-Dest: t\r\n")
    assert dests == [b"t"]
    assert payloads == [b"hi"]


@pytest.mark.parametrize("dest", [b"secret.*", b"secret.>", b"secret.* evil", b"a..b", b"a b"])
@pytest.mark.parametrize("only", [False, True])
def test_a_destination_that_is_no_subject_is_not_used(
    server: SimServer, monkeypatch: pytest.MonkeyPatch, dest: bytes, only: bool
) -> None:
    headers = b"Nats-Trace-Dest: %b\r\n%b" % (dest, b"Nats-Trace-Only: true\r\n" if only else b"")
    dests, payloads = traces_of(server, monkeypatch, headers)
    assert dests == []
    assert payloads == ([] if only else [b"hi"])
