"""Client sessions on a virtual clock: protocol verbs, replies, limits, slow receivers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyjs.base.clock import NS_PER_S
from pyjs.config.options import Options
from pyjs.core.link import Peer
from pyjs.testing import CONNECT, MemoryLink, VirtualNode


@pytest.fixture
def node() -> VirtualNode:
    return VirtualNode()


def test_info_comes_first_and_again_after_the_first_pong(node: VirtualNode) -> None:
    client = node.client(connect=None)

    first = json.loads(client.info.removeprefix(b"INFO "))
    client.send(b"CONNECT " + CONNECT + b"\r\nPING\r\n")
    pong, second, rest = client.take().split(b"\r\n")

    assert client.info.endswith(b" \r\n")
    assert first["client_id"] == 5
    assert "connect_info" not in first
    assert pong == b"PONG"
    assert json.loads(second.removeprefix(b"INFO "))["remote_account"] == "$G"
    assert rest == b""
    client.send(b"PING\r\n")
    assert client.take() == b"PONG\r\n"


def test_a_client_that_never_connects_is_verbose_and_pedantic(node: VirtualNode) -> None:
    client = node.client(connect=None)

    client.send(b"SUB a 1\r\nPUB a.* 2\r\nhi\r\nPUB a 2\r\nhi\r\nUNSUB 1\r\nPING\r\n")

    assert client.take() == (
        b"+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\n+OK\r\nPONG\r\n"
    )


def test_messages_reach_every_subscription_in_order(node: VirtualNode) -> None:
    receiver, publisher = node.client(), node.client()
    receiver.send(b"SUB foo.* 1\r\nSUB foo.a 2\r\n")

    publisher.send(b"PUB foo.a r 1\r\nx\r\nHPUB foo.a 12 13\r\nNATS/1.0\r\n\r\ny\r\n")

    assert receiver.take() == (
        b"MSG foo.a 1 r 1\r\nx\r\nMSG foo.a 2 r 1\r\nx\r\n"
        b"HMSG foo.a 1 12 13\r\nNATS/1.0\r\n\r\ny\r\nHMSG foo.a 2 12 13\r\nNATS/1.0\r\n\r\ny\r\n"
    )


def test_headers_are_stripped_for_a_client_without_them(node: VirtualNode) -> None:
    receiver = node.client(b'{"verbose":false,"pedantic":false}')
    receiver.send(b"SUB foo 1\r\n")

    node.client().send(b"HPUB foo rep 12 15\r\nNATS/1.0\r\n\r\nabc\r\n")

    assert receiver.take() == b"MSG foo 1 rep 3\r\nabc\r\n"


def test_unusual_blanks_are_not_forwarded(node: VirtualNode) -> None:
    receiver = node.client()
    receiver.send(b"SUB foo 1\r\n")

    node.client().send(b"PUB  foo \t rep   3\nabc\r\n")

    assert receiver.take() == b"MSG foo 1 rep 3\r\nabc\r\n"


def test_echo_false_keeps_own_messages_away(node: VirtualNode) -> None:
    client = node.client(b'{"verbose":false,"pedantic":false,"echo":false}')
    client.send(b"SUB foo 1\r\nPUB foo 1\r\nx\r\n")
    assert client.take() == b""
    node.client().send(b"PUB foo 1\r\ny\r\n")
    assert client.take() == b"MSG foo 1 1\r\ny\r\n"


def test_no_responders_is_told_to_the_publisher(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB _INBOX.x.* 7\r\nPUB nobody.here _INBOX.x.1 0\r\n\r\n")
    assert client.take() == (
        b"HMSG _INBOX.x.1 7 43 43\r\nNATS/1.0 503\r\nNats-Subject: nobody.here\r\n\r\n\r\n"
    )


def test_no_responders_without_headers_is_refused(node: VirtualNode) -> None:
    client = node.client(b'{"verbose":false,"no_responders":true}')
    assert client.link.closed
    assert client.session.closed_reason == "No Responders Requires Headers"


def test_unsub_max_counts_all_deliveries(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB foo 1\r\nPUB foo 1\r\na\r\nUNSUB 1 3\r\n" + b"PUB foo 1\r\nb\r\n" * 5)
    assert client.payloads() == [b"a", b"b", b"b"]
    assert client.session.subscriptions == {}


def test_unsub_max_below_the_delivered_count_removes_at_once(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB foo 1\r\nPUB foo 1\r\na\r\nPUB foo 1\r\na\r\nUNSUB 1 1\r\nPUB foo 1\r\nb\r\n")
    assert client.payloads() == [b"a", b"a"]


def test_a_used_up_subscription_is_no_responder(node: VirtualNode) -> None:
    client = node.client()
    client.send(
        b"SUB foo 1\r\nUNSUB 1 1\r\nSUB _INBOX.x.* 7\r\nPUB foo 1\r\na\r\nPUB foo _INBOX.x.1 1\r\nb\r\n"
    )
    assert b" 503\r\n" in client.take()


def test_a_second_sub_with_the_same_sid_is_ignored(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB foo 1\r\nSUB bar 1\r\nPUB foo 1\r\na\r\nPUB bar 1\r\nb\r\n")
    assert client.payloads() == [b"a"]


def test_a_second_connect_drops_the_subscriptions(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB foo 1\r\nCONNECT " + CONNECT + b"\r\nPUB foo 1\r\na\r\n")
    assert client.payloads() == []


@pytest.mark.parametrize("subject", [b"foo..bar", b".foo", b"foo.", b"foo.>.x"])
def test_an_invalid_subscription_subject_is_told_and_the_connection_stays(
    node: VirtualNode, subject: bytes
) -> None:
    client = node.client()
    client.send(b"SUB %b 1\r\nPING\r\n" % subject)
    assert client.take() == b"-ERR 'Invalid Subject'\r\nPONG\r\n"


@pytest.mark.parametrize(
    ("data", "answer", "reason"),
    [
        (b"FOO\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", "Protocol Violation"),
        (b"PUB a b c 1\r\n", b"", "Protocol Violation"),
        (b"SUB a b c d\r\n", b"", "Protocol Violation"),
        (b"UNSUB a b c\r\n", b"", "Protocol Violation"),
        (b"CONNECT nonsense\r\n", b"", "Protocol Violation"),
        (b'CONNECT {"verbose":1}\r\n', b"", "Protocol Violation"),
        (
            b"SUB " + b"a" * 5000 + b" 1\r\n",
            b"-ERR 'maximum control line exceeded'\r\n",
            "Maximum Control Line Exceeded",
        ),
        (
            b"PUB a 1048577\r\n",
            b"-ERR 'Maximum Payload Violation'\r\n",
            "Maximum Message Payload Exceeded",
        ),
        (b'CONNECT {"protocol":2}\r\n', b"-ERR 'invalid client protocol'\r\n", "Bad Client Protocol Version"),
        (
            b'CONNECT {"account":"A"}\r\n',
            b"-ERR 'Authorization Violation'\r\n",
            "Authentication Failure",
        ),
        (b"-ERR 'go away'\r\n", b"", "Parse Error"),
    ],
)
def test_wrong_input_closes_with_the_right_words(
    node: VirtualNode, data: bytes, answer: bytes, reason: str
) -> None:
    client = node.client()

    client.send(data)

    assert client.take() == answer
    assert client.link.closed
    assert client.session.closed_reason == reason
    assert node.node.sessions == {}
    assert node.node.closed[-1].closed_reason == reason


def test_nothing_is_taken_after_the_close(node: VirtualNode) -> None:
    client, other = node.client(), node.client()
    other.send(b"SUB > 1\r\n")
    assert client.session.receive_data(b"FOO\r\nPUB a 1\r\nx\r\n") is False
    node.turn()
    assert other.payloads() == []
    assert client.session.receive_data(b"PING\r\n") is False


@pytest.mark.parametrize("reply", [b"$JS.ACK.x", b"_R_.x", b"_GR_.x"])
def test_reserved_replies_are_refused(node: VirtualNode, reply: bytes) -> None:
    client = node.client()
    client.send(b"SUB a 1\r\nPUB a %b 1\r\nx\r\nPING\r\n" % reply)
    assert client.take() == (
        b"-ERR 'Permissions Violation for Publish with Reply of \"%b\"'\r\nPONG\r\n" % reply
    )


@pytest.mark.parametrize("subject", [b"$NRG.x", b"_GR_.x"])
def test_reserved_subjects_are_refused(node: VirtualNode, subject: bytes) -> None:
    client = node.client()
    client.send(b"PUB %b 1\r\nx\r\n" % subject)
    assert client.take() == b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject


def test_max_subscriptions_and_sub_tokens_are_told() -> None:
    options = Options()
    options.limits.max_subscriptions, options.limits.max_sub_tokens = 2, 3
    client = VirtualNode(options).client()
    client.send(b"SUB a.b.c.d 1\r\nSUB a 2\r\nSUB b 3\r\nSUB c 4\r\n")
    assert client.take() == (
        b"-ERR 'Permissions Violation for Subscription to \"a.b.c.d\", too many tokens'\r\n"
        b"-ERR 'maximum subscriptions exceeded'\r\n"
    )


def test_max_connections_refuses_one_more() -> None:
    options = Options()
    options.limits.max_connections = 1
    node = VirtualNode(options)
    node.client()
    refused = node.client(connect=None)
    assert refused.info.endswith(b" \r\n-ERR 'maximum connections exceeded'\r\n")
    assert refused.link.closed


def test_a_silent_client_is_pinged_and_then_stale(node: VirtualNode) -> None:
    node.options.limits.ping_interval_ns = 10 * NS_PER_S
    node.node.apply_options(node.options)
    client = node.client()
    node.advance(seconds=11)
    assert client.take() == b"PING\r\n"
    node.advance(seconds=10)
    assert client.take() == b"PING\r\n"
    node.advance(seconds=10)
    assert client.take() == b"-ERR 'Stale Connection'\r\n"
    assert client.session.closed_reason == "Stale Connection"
    assert node.node.stale_connections == 1


def test_a_pong_keeps_the_connection_and_measures_the_round_trip(node: VirtualNode) -> None:
    node.options.limits.ping_interval_ns = 10 * NS_PER_S
    node.node.apply_options(node.options)
    client = node.client()
    for _ in range(600):
        node.advance(milliseconds=100)
        if b"PING" in client.take():
            client.send(b"PONG\r\n")
    assert not client.link.closed
    assert 0 < client.session.rtt_ns <= 100_000_000


def test_a_receiver_over_max_pending_is_dropped_without_a_word() -> None:
    options = Options()
    options.limits.max_pending = 10_000
    node = VirtualNode(options)
    slow, publisher = node.client(), node.client()
    slow.send(b"SUB a 1\r\n")
    slow.session.output_paused()
    for _ in range(3):
        publisher.send(b"PUB a 4000\r\n" + b"x" * 4000 + b"\r\n")
    assert slow.link.aborted
    assert slow.take() == b""
    assert slow.session.closed_reason == "Slow Consumer (Pending Bytes)"
    assert node.node.slow_consumers == 1
    assert not publisher.link.closed


def test_a_receiver_that_takes_nothing_meets_the_write_deadline(node: VirtualNode) -> None:
    slow = node.client()
    slow.send(b"SUB a 1\r\n")
    slow.session.output_paused()
    node.client().send(b"PUB a 1\r\nx\r\n")
    node.advance(seconds=9)
    assert not slow.link.closed
    node.advance(seconds=2)
    assert slow.session.closed_reason == "Slow Consumer (Write Deadline)"


def test_output_waits_while_the_transport_is_full(node: VirtualNode) -> None:
    receiver = node.client()
    receiver.send(b"SUB a 1\r\n")
    receiver.session.output_paused()
    node.client().send(b"PUB a 1\r\nx\r\n")
    assert receiver.take() == b""
    receiver.session.output_resumed()
    node.turn()
    assert receiver.take() == b"MSG a 1 1\r\nx\r\n"


def test_a_publisher_is_stalled_while_a_receiver_is_nearly_full() -> None:
    options = Options()
    options.limits.max_pending = 1 << 20
    node = VirtualNode(options)
    slow, publisher = node.client(), node.client()
    slow.send(b"SUB a 1\r\n")
    slow.session.output_paused()
    publisher.send(b"PUB a 900000\r\n" + b"x" * 900_000 + b"\r\n")
    assert not publisher.link.reading
    assert publisher.session.stalls == 1
    node.advance(milliseconds=6)
    assert publisher.link.reading


def test_a_lost_connection_takes_its_subscriptions_along(node: VirtualNode) -> None:
    client = node.client()
    client.send(b"SUB a 1\r\nSUB b q 2\r\n")
    client.session.connection_lost()
    assert len(node.node.accounts["$G"].subs) == 0
    assert client.session.closed_reason == "Client Closed"


def test_lame_duck_is_announced(node: VirtualNode) -> None:
    client = node.client()
    node.node.start_lame_duck()
    node.turn()
    assert json.loads(client.take().removeprefix(b"INFO "))["ldm"] is True


def test_counters_survive_the_connection(node: VirtualNode) -> None:
    receiver, publisher = node.client(), node.client()
    receiver.send(b"SUB a 1\r\n")
    publisher.send(b"PUB a 5\r\nhello\r\nHPUB a 12 15\r\nNATS/1.0\r\n\r\nabc\r\n")
    assert node.node.counters() == (2, 20, 2, 20)
    publisher.session.connection_lost()
    receiver.session.connection_lost()
    assert node.node.counters() == (2, 20, 2, 20)


@pytest.mark.parametrize("count", [3, 7, 20])
def test_much_output_leaves_as_it_was_written_and_so_does_what_follows(count: int) -> None:
    node = VirtualNode()
    sender, receiver = node.client(), node.client()
    receiver.send(b"SUB a 1\r\n")
    receiver.session.output_paused()
    payloads = [bytes([number]) * 1_000_000 for number in range(count)]
    for payload in payloads:
        sender.send(b"PUB a %d\r\n%b\r\n" % (len(payload), payload))
    receiver.session.output_resumed()
    node.turn()
    assert receiver.payloads() == payloads
    sender.send(b"PUB a 1\r\nx\r\n")
    assert receiver.payloads() == [b"x"]


class PiecesLink(MemoryLink):
    """Keeps the objects that the session writes, unjoined."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def test_output_that_piles_up_is_never_copied_to_a_larger_place(node: VirtualNode) -> None:
    link = PiecesLink()
    receiver = node.node.open_session(Peer("127.0.0.1", 50001), link)
    receiver.receive_data(b"CONNECT {}\r\nSUB a 1\r\n")
    node.turn()
    link.pieces.clear()
    receiver.output_paused()
    sender = node.client()
    for _ in range(80):
        sender.send(b"PUB a 100000\r\n%100000d\r\n" % 7)
    receiver.output_resumed()
    node.turn()

    sizes = [len(piece) for piece in link.pieces]
    assert sum(sizes) == 80 * len(b"MSG a 1 100000\r\n%100000d\r\n" % 7)
    assert len(sizes) >= 8
    assert max(sizes) <= 1 << 20


class PortionLink(PiecesLink):
    """Accepts at most 1,000 bytes at once, and records the size of each write."""

    portion = 1000

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    def write_all(self, pieces: list[bytes]) -> None:
        self.writes.append(sum(map(len, pieces)))
        super().write_all(pieces)


def subscriber_of(node: VirtualNode, link: PiecesLink) -> None:
    """Open a session on `link` that subscribes to a; clear what it has written so far."""
    node.node.open_session(Peer("127.0.0.1", 50001), link).receive_data(b"CONNECT {}\r\nSUB a 1\r\n")
    node.turn()
    link.pieces.clear()


@pytest.mark.parametrize(("size", "copies"), [(100_000, 1), (1_000, 5)])
def test_a_large_message_to_many_is_one_object(node: VirtualNode, size: int, copies: int) -> None:
    links = [PiecesLink() for _ in range(5)]
    for link in links:
        subscriber_of(node, link)
    node.client().send(b"PUB a r %d\r\n%b\r\n" % (size, b"x" * size))

    assert {b"".join(link.pieces) for link in links} == {b"MSG a 1 r %d\r\n%b\r\n" % (size, b"x" * size)}
    assert len({id(piece) for link in links for piece in link.pieces if len(piece) >= size}) == copies


def test_headers_of_a_large_message_to_many(node: VirtualNode) -> None:
    headers, body = b"NATS/1.0\r\nA: 1\r\n\r\n", b"x" * 100_000
    plain = node.client(b'{"verbose":false,"headers":false}')
    readers = [plain, *(node.client() for _ in range(3))]
    for reader in readers:
        reader.send(b"SUB a 1\r\n")
    data = headers + body
    node.client().send(b"HPUB a %d %d\r\n%b\r\n" % (len(headers), len(data), data))

    assert {frame.payload for reader in readers for frame in reader.frames()} == {body}


def test_a_link_whose_writes_cost_time_gets_portions(node: VirtualNode) -> None:
    link = PortionLink()
    subscriber_of(node, link)
    sender = node.client()
    parts = [
        b"PUB a %d\r\n%b\r\n" % (size, b"%d" % (size % 10) * size) for size in (10, 990, 2500, 70_000, 3)
    ]
    sender.send(b"".join(parts))

    expected = b"".join(part.replace(b"PUB a ", b"MSG a 1 ") for part in parts)
    assert b"".join(link.pieces) == expected
    assert max(map(len, link.pieces)) <= 1000
    assert max(link.writes) <= 1000
    assert len(link.writes) >= 70


def test_the_end_of_a_session_leaves_in_one_write(node: VirtualNode) -> None:
    link = PiecesLink()
    link.portion = 10
    node.node.open_session(Peer("127.0.0.1", 50001), link).receive_data(b"CONNECT {}\r\nNONSENSE\r\n")

    assert link.pieces[-1].endswith(b"-ERR 'Unknown Protocol Operation'\r\n")


def test_publishers_are_stalled_while_too_much_waits_for_slow_writes(node: VirtualNode) -> None:
    link = PiecesLink()
    link.portion = 1
    subscriber_of(node, link)
    publisher = node.client()
    data = b"PUB a 1000000\r\n%b\r\n" % bytes(1_000_000)
    sent = 0
    while publisher.session.stalls == 0:
        publisher.session.receive_data(data)
        node.node.turn(node.clock.now_ns())
        sent += 1
        assert sent < 64

    assert sent * len(data) > 32 << 20
    assert not publisher.link.reading


ACCOUNT_FULL = """
accounts { A { users: [{user: a, password: p}], limits: {max_connections: 1} } }
authorization { users: [{user: g, password: p}] }
no_auth_user: a
"""


@pytest.mark.parametrize("subject", [b"foo", b"$SYS.REQ.x"])
def test_a_client_that_its_account_refuses_publishes_nothing(subject: bytes, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(ACCOUNT_FULL)
    with VirtualNode(path) as node:
        node.client(connect=None).send(b"PUB bar 0\r\n\r\n")  # account A has reached its limit
        others = node.client(b'{"verbose":false,"user":"g","pass":"p"}')  # in the global account
        others.send(b"SUB > 1\r\n")

        stranger = node.client(connect=None)
        stranger.send(b"PUB %b 2\r\nhi\r\n" % subject)

        assert b"maximum account active connections exceeded" in stranger.take()
        assert others.take() == b""


def test_a_session_has_a_name_after_its_end(node: VirtualNode) -> None:
    client = node.client()
    name = str(client.session)
    client.session.close("Client Closed")
    assert name.startswith(str(client.session))


def test_the_write_deadline_of_a_client_that_takes_nothing_outlives_its_login(node: VirtualNode) -> None:
    slow = node.client(None)
    slow.session.output_paused()
    slow.session.receive_data(b"CONNECT {}\r\n")
    node.advance(seconds=11)
    assert slow.session.closed_reason == "Slow Consumer (Write Deadline)"


def test_a_client_that_leaves_while_it_takes_nothing_is_no_slow_consumer(node: VirtualNode) -> None:
    slow = node.client()
    slow.session.output_paused()
    slow.session.receive_data(b"PING\r\n")
    slow.session.lose_link()
    node.advance(seconds=11)
    assert node.node.slow_consumers == 0
    slow.session.end_input()
    assert slow.session.closed_reason == "Client Closed"
