"""Input of a route: invalid subjects, lengths and queue groups."""

from __future__ import annotations

import json

import pytest
from tests.fuzz.test_route_frames import HELLO, frame, interest_frame, message_frame
from tests.support.simnet import SimNet, SimServer

from pyjs.cluster.route import Route
from pyjs.core.link import Peer
from pyjs.testing import MemoryLink

BATCH_FRAME = 12  # FRAME_CONSENSUS of wire/route_frames.pxd


@pytest.fixture
def server() -> SimServer:
    return SimNet(1).start("a")


def route_of(server: SimServer) -> Route:
    """Return an open route on which account number 0 stands for $G."""
    route = server.cluster.open_route(Peer("10.9.9.9", 1), MemoryLink())
    route.receive_data(b"CONNECT " + json.dumps(HELLO).encode() + b"\r\n" + frame(1, b"$G"))
    server.wake()
    assert list(server.cluster.routes.values()) == [route]
    return route


@pytest.mark.parametrize(
    ("subject", "reply"),
    [(b"x\r\nMSG y", b""), (b"x y", b""), (b"x", b"r\r\nPING"), (b"x", b"r 5"), (b"x\0", b""), (b"x", b"\t")],
)
def test_a_message_that_would_forge_a_line_ends_the_route(
    server: SimServer, subject: bytes, reply: bytes
) -> None:
    client = server.client()
    client.send(b"SUB > 1\r\n")
    route = route_of(server)
    route.receive_data(message_frame(subject, reply, b"", b"hi"))
    server.wake()
    assert client.payloads() == []
    assert route.closed_reason == "Protocol Violation"
    assert any("with wrong lengths, or an invalid subject" in line for _, line in server.log.lines)


def test_interest_of_200_000_tokens_comes_and_goes(server: SimServer) -> None:
    subject = b".".join([b"t"] * 200_000)
    route = route_of(server)
    subs = server.node.accounts["$G"].subs
    route.receive_data(interest_frame(subject, b"", 1))
    server.wake()
    assert [sub.subject for sub in subs.subscriptions() if sub.is_remote] == [subject]
    client = server.client()
    client.send(b"PUB %b 2\r\nhi\r\nPING\r\n" % subject[:4000])
    assert client.take().endswith(b"PONG\r\n")
    route.receive_data(message_frame(subject, b"", b"", b"hi"))
    route.receive_data(interest_frame(subject, b"", 0))
    server.wake()
    assert not [sub for sub in subs.subscriptions() if sub.is_remote]
    assert route.closed_reason == ""


def test_a_long_ping_is_not_echoed_whole(server: SimServer) -> None:
    link = MemoryLink()
    route = server.cluster.open_route(Peer("10.9.9.9", 1), link)
    route.receive_data(b"CONNECT " + json.dumps(HELLO).encode() + b"\r\n")
    server.wake()
    link.data = b""
    route.receive_data(frame(4, b"p" * 60_000))
    server.wake()
    assert link.data.count(b"p") == 64


class NotedLink(MemoryLink):
    """Records the pieces of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[bytes]] = []

    def write(self, data: bytes) -> None:
        self.writes.append([data])

    def write_all(self, pieces: list[bytes]) -> None:
        self.writes.append(pieces)


def test_a_small_batch_is_one_piece_and_a_large_one_is_not_copied(server: SimServer) -> None:
    link, large = NotedLink(), b"b" * 5000
    route = server.cluster.open_route(Peer("10.9.9.9", 1), link)
    route.receive_data(b"CONNECT " + json.dumps(HELLO).encode() + b"\r\n")
    server.wake()
    link.writes.clear()

    route.send_batch([b"head", b"a" * 100])
    route.send_batch([b"head", large])

    (small,), (header, head, payload) = link.writes
    assert small == frame(BATCH_FRAME, b"head" + b"a" * 100)
    assert (header + head, payload is large) == (frame(BATCH_FRAME, b"head" + large)[: len(header) + 4], True)


def test_the_sender_of_a_message_that_fails_is_not_that_of_the_next_one(
    server: SimServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trace: object) -> None:
        raise RuntimeError

    server.cluster.options.local = True  # only workers report senders
    monkeypatch.setattr(server.node, "send_trace", fail)
    route = route_of(server)
    route.receive_data(frame(9, b'{"user":"u"}'))
    with pytest.raises(RuntimeError):
        route.receive_data(message_frame(b"x", b"", b"NATS/1.0\r\nNats-Trace-Dest: t\r\n\r\n", b"hi"))
    account, requests = server.node.accounts["$G"], []
    account.subscribe_handler(b"y", requests.append)
    account.send(b"y", b"", b"")
    server.wake()
    assert [request.session for request in requests] == [None]


def test_a_batch_is_written_before_the_end_of_the_turn_unless_other_frames_wait(server: SimServer) -> None:
    route = route_of(server)
    link = route.link
    assert isinstance(link, MemoryLink)
    link.data = b""
    route.send_batch([b"first ", b"batch"])
    assert link.data == frame(12, b"first batch")
    route.send_ping(b"?")
    route.send_batch([b"second"])
    assert link.data == frame(12, b"first batch")
    server.wake()
    assert link.data == frame(12, b"first batch") + frame(4, b"?") + frame(12, b"second")
    route.output_paused()
    route.send_batch([b"third"])
    server.wake()
    assert not link.data.endswith(b"third")
    route.output_resumed()
    server.wake()
    assert link.data.endswith(frame(12, b"third"))


def test_heartbeats_and_parts_of_frames_need_no_turn(server: SimServer) -> None:
    route = route_of(server)
    needed = []
    for data in (
        frame(5, bytes(8)),
        interest_frame(b"x", b"", 1),
        frame(5, bytes(8))[:9],
        bytes(11),
        frame(7, b""),
    ):
        route.receive_data(data)
        needed.append(route.needs_turn)
    assert needed == [False, True, False, False, True]
