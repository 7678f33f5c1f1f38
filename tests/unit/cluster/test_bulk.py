"""Large messages use a separate connection, and the order of a publisher's messages is kept."""

from __future__ import annotations

import json

import pytest
from tests.fuzz.test_route_frames import HELLO
from tests.support.simnet import LONG_NS, SimNet, SimServer, Wire, say, three
from tests.unit.cluster.test_route import route_of

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.cluster.route import Route
from pyjs.core.link import Peer
from pyjs.testing import MemoryLink, RawClient

SIZE = 100_000
SLOW_NS = NS_PER_S // 2


@pytest.fixture
def net() -> SimNet:
    return SimNet(seed=3)


def message(number: int, size: int = 0) -> bytes:
    payload = b"%*d" % (size, number)
    return b"PUB x %d\r\n%b\r\n" % (len(payload), payload)


def numbers(client: RawClient) -> list[int]:
    return [int(frame.payload) for frame in client.frames()]


def route_between(one: SimServer, other: SimServer) -> Route:
    return one.cluster.routes[other.node.server_id]


def delay_bulk(net: SimNet, one: SimServer, other: SimServer) -> None:
    """Delay large messages from one server to the other by SLOW_NS."""
    aside = route_between(one, other).aside
    assert aside is not None
    assert isinstance(aside.link, Wire)
    aside.link.arrives_ns = net.clock.now_ns() + SLOW_NS


def subscriber(net: SimNet, server: SimServer) -> RawClient:
    client = server.client()
    say(net, client, b"SUB x 1\r\nSUB x g 2\r\n")
    return client


def test_a_large_message_takes_its_own_connection_and_counts_on_the_route(net: SimNet) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    receiver, sender = subscriber(net, b), a.client()
    say(net, sender, message(1, SIZE) + message(2))
    assert sorted(numbers(receiver)) == [1, 1, 2, 2]
    here, there = route_between(a, b), route_between(b, a)
    assert here.aside is not None
    assert there.aside is not None
    assert (here.aside.out_msgs, here.out_msgs) == (2, 2)
    assert (there.aside.in_msgs, there.in_msgs) == (2, 2)


def test_a_large_message_does_not_delay_small_ones_of_others(net: SimNet) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    receiver = b.client()
    say(net, receiver, b"SUB x 1\r\n")
    large, small = a.client(), [a.client() for _ in range(8)]
    delay_bulk(net, a, b)
    say(net, large, message(1, SIZE) + message(2))
    for number, client in enumerate(small, 10):
        say(net, client, message(number))
    early = numbers(receiver)
    assert len(early) >= 5  # without those that share an order class with the publisher of the large message
    assert 2 not in early
    net.run(SLOW_NS)
    late = numbers(receiver)
    assert late[:2] == [1, 2]
    assert sorted(early + late) == [1, 2, *range(10, 18)]
    say(net, large, message(4))
    assert numbers(receiver) == [4]
    aside = route_between(a, b).aside
    assert aside is not None
    assert aside.out_msgs == len(late)  # the last message was sent on the route again


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_a_publisher_stays(seed: int) -> None:
    net = SimNet(seed, jitter_ns=20 * NS_PER_MS)
    a, b, _ = three(net)
    net.run(NS_PER_S // 5)
    receiver = b.client()
    receiver.send(b"SUB x 1\r\n")
    net.run(NS_PER_S // 5)
    sender = a.client()
    for number in range(60):
        sender.send(message(number, SIZE if net.rng.random() < 0.2 else 0))
        net.run(net.rng.randrange(8 * NS_PER_MS))
    net.run(NS_PER_S)
    assert numbers(receiver) == list(range(60))


def test_a_large_message_comes_after_the_interest_of_its_publisher(net: SimNet) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    service, client = b.client(), a.client()
    say(net, service, b"SUB x 1\r\n")
    link = route_between(a, b).link
    assert isinstance(link, Wire)
    link.arrives_ns = net.clock.now_ns() + SLOW_NS
    body = b"q" * SIZE
    say(net, client, b"SUB answer 1\r\nPUB x answer %d\r\n%b\r\n" % (SIZE, body))
    assert service.frames() == []  # the message waits until the interest in the answer is known
    net.run(SLOW_NS)
    assert [frame.payload for frame in service.frames()] == [body]
    say(net, service, b"PUB answer 2\r\nok\r\n")
    assert client.payloads() == [b"ok"]


def test_a_lost_connection_for_large_messages_ends_the_route_which_opens_again(net: SimNet) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    route = route_between(a, b)
    assert route.aside is not None
    route.aside.link.close()
    route.aside.connection_lost()
    a.wake()
    assert route.closed_reason == "Route Closed"
    net.run_until(lambda: net.whole() and all(each.aside for each in a.cluster.routes.values()))


def test_publishers_of_large_messages_are_slowed_down(net: SimNet) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    subscriber(net, b)
    sender = a.client()
    aside = route_between(a, b).aside
    assert aside is not None
    aside.output_paused()
    for number in range(60):
        sender.send(message(number, 1_000_000))
    assert aside.pending_size <= a.node.settings.max_pending
    assert a.node.stalled_clients > 0
    assert aside.closed_reason == ""


def test_a_route_with_a_backlog_does_not_run_a_turn_for_each_message(
    net: SimNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = three(net)
    subscriber(net, b)
    route_between(a, b).output_paused()
    sender = a.client()
    sender.send(b"".join(message(number, 1000) for number in range(1000)))
    turns = []
    relieve = a.node.relieve
    monkeypatch.setattr(a.node, "relieve", lambda now_ns: (turns.append(now_ns), relieve(now_ns)))
    sender.send(b"".join(message(number, 1000) for number in range(1000)))
    assert 1 <= len(turns) <= 8


@pytest.mark.parametrize("dest", [b"", b"Nats-Trace-Dest: t\r\n"], ids=["plain", "traced"])
def test_each_queue_group_gets_a_large_message_and_none_another_one_twice(net: SimNet, dest: bytes) -> None:
    a, b, _ = three(net)
    net.run(LONG_NS)
    receiver, large, small = b.client(), a.client(), a.client()
    say(net, receiver, b"SUB x 1\r\nSUB x g 2\r\nSUB y 3\r\nSUB y g 4\r\n")
    head = b"NATS/1.0\r\nA: b\r\n%b\r\n" % dest
    small.session.receive_data(b"PUB y 1\r\n0\r\n")  # written in the same turn
    say(net, large, b"HPUB x %d %d\r\n%b%b\r\n" % (len(head), len(head) + SIZE, head, b"1" * SIZE))
    assert sorted((frame.subject, frame.sid) for frame in receiver.frames()) == [
        (b"x", b"1"),
        (b"x", b"2"),
        (b"y", b"3"),
        (b"y", b"4"),
    ]


def test_a_second_connection_for_large_messages_is_refused(net: SimNet) -> None:
    server = net.start("a")
    main = route_of(server)
    hello = HELLO | {"purpose": "bulk", "beside": main.rid}
    beside = [server.cluster.open_route(Peer("10.9.9.9", 1), MemoryLink()) for _ in range(2)]
    for each in beside:
        each.receive_data(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
    server.wake()
    assert main.aside is beside[0]
    assert [each.closed_reason for each in beside] == ["", "No Route"]
    assert main.closed_reason == ""
