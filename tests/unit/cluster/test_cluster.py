"""Several servers on a simulated network: which servers connect, and where messages arrive."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.support.simnet import LONG_NS, PORT, SimNet, SimServer, say, three

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.core.sink import Request
from pyjs.testing import RawClient


@pytest.fixture
def net() -> SimNet:
    return SimNet(seed=1)


def publish(net: SimNet, client: RawClient, subject: bytes, payload: bytes) -> None:
    say(net, client, b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))


def logged(server: SimServer, text: str) -> bool:
    return any(text in line for _, line in server.log.lines)


# -- meeting ---------------------------------------------------------------------------------------------------


def test_servers_that_know_one_address_all_meet(net: SimNet) -> None:
    servers = three(net)
    assert [len(each.cluster.routes) for each in servers] == [2, 2, 2]


def test_two_servers_that_connect_to_each_other_have_one_route() -> None:
    for seed in range(40):
        net = SimNet(seed, jitter_ns=3 * NS_PER_MS)
        a = net.start("a", "10.0.0.2")
        b = net.start("b", "a")
        net.run_until(net.whole)
        net.run(3 * NS_PER_S)
        assert [len(a.cluster.routes), len(b.cluster.routes)] == [1, 1]
        assert net.whole()
        assert a.cluster.greeting == b.cluster.greeting == set()


def test_a_route_to_itself_is_not_tried_again(net: SimNet) -> None:
    a = net.start("a", "10.0.0.1")
    net.run(5 * NS_PER_S)
    assert not a.cluster.routes
    assert [line for line in a.log.lines if line[0] == "ERR"] == []
    assert a.cluster.take_dials() == []


def test_a_server_that_starts_later_is_found(net: SimNet) -> None:
    a = net.start("a", "10.0.0.2")
    net.run(3 * NS_PER_S)
    assert logged(
        a, "Error trying to connect to route (attempt 1): dial tcp 10.0.0.2:6222: connect: connection refused"
    )
    net.start("b")
    net.run_until(net.whole)


def test_another_cluster_is_refused_with_both_names(net: SimNet) -> None:
    a = net.start("a")
    b = net.start("b", "a", cluster="OTHER")
    net.run(NS_PER_S)
    assert not a.cluster.routes
    assert not b.cluster.routes
    assert logged(
        b, 'the server "a" is in the cluster "SIM", not in "OTHER": write the same cluster.name on both'
    )


def test_a_wrong_password_is_refused(net: SimNet) -> None:
    a = net.start("a", login="right")
    b = net.start("b", "a", login="wrong")
    net.run(NS_PER_S)
    assert not a.cluster.routes
    assert logged(a, "Authorization Violation")
    assert logged(b, "the other side refuses: 'Authorization Violation'")
    assert not any("wrong" in line or "right" in line for each in (a, b) for _, line in each.log.lines)


def test_the_right_password_opens_a_route(net: SimNet) -> None:
    net.start("a", login="right")
    net.start("b", "a", login="right")
    net.run_until(net.whole)


def test_a_killed_server_is_forgotten_and_its_successor_found(net: SimNet) -> None:
    a, b, c = three(net)
    net.kill("b")
    net.run(LONG_NS)
    assert [len(each.cluster.routes) for each in (a, c)] == [1, 1]
    b = net.start("b", "a")
    net.run_until(net.whole)
    assert len(b.cluster.routes) == 2


# -- messages --------------------------------------------------------------------------------------------------


def test_each_subscription_of_another_server_gets_a_message_once(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    say(net, there, b"SUB x.* 1\r\nSUB x.> 2\r\nSUB x.y 3\r\n")
    say(net, far, b"SUB x.y 1\r\n")
    publish(net, here, b"x.y", b"hi")
    assert sorted(frame.sid for frame in there.frames()) == [b"1", b"2", b"3"]
    assert far.payloads() == [b"hi"]
    assert b.cluster.routes[a.node.server_id].in_msgs == 1


def test_headers_replies_and_large_payloads_cross_unchanged(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB x 1\r\n")
    big = bytes(range(256)) * 3900
    headers = b"NATS/1.0\r\nA: b\r\n\r\n"
    say(net, here, b"HPUB x r.1 %d %d\r\n%b%b\r\n" % (len(headers), len(headers) + len(big), headers, big))
    (frame,) = there.frames()
    assert (frame.subject, frame.reply, frame.headers, frame.payload) == (b"x", b"r.1", headers, big)


def test_an_answer_finds_its_way_though_the_inbox_is_new(net: SimNet) -> None:
    a, b, _ = three(net)
    here, service = a.client(), b.client()
    say(net, service, b"SUB svc 1\r\n")
    here.send(b"SUB _INBOX.q.* 1\r\nPUB svc _INBOX.q.1 1\r\n?\r\n")
    for _ in range(50):
        net.run(NS_PER_MS // 10)
        for frame in service.frames():
            service.send(b"PUB %b 1\r\n!\r\n" % frame.reply)
    assert here.payloads() == [b"!"]


def test_a_request_that_nobody_in_the_cluster_serves_is_told_so(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB svc 1\r\n")
    say(net, there, b"UNSUB 1\r\n")
    say(net, here, b"SUB _INBOX.q.* 1\r\nPUB svc _INBOX.q.1 1\r\n?\r\n")
    (frame,) = here.frames()
    assert frame.headers.startswith(b"NATS/1.0 503")


def test_a_queue_group_prefers_members_here(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    for client in (here, there, far):
        say(net, client, b"SUB q G 1\r\n")
    for _ in range(20):
        publish(net, here, b"q", b"")
    assert [len(each.frames()) for each in (here, there, far)] == [20, 0, 0]


def test_other_servers_share_a_queue_group_by_their_members(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    say(net, there, b"SUB q G 1\r\nSUB q G 2\r\nSUB q G 3\r\n")
    say(net, far, b"SUB q G 1\r\n")
    here.send(b"PUB q 0\r\n\r\n" * 400)
    net.run(LONG_NS)
    sids = Counter(frame.sid for frame in there.frames())
    away = len(far.frames())
    assert sum(sids.values()) + away == 400
    assert 60 <= away <= 140
    assert all(count >= 60 for count in sids.values())


def test_plain_subscriptions_and_several_queue_groups_share_one_frame(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB q 1\r\nSUB q G 2\r\nSUB q H 3\r\nSUB q.> G 4\r\n")
    publish(net, here, b"q", b"x")
    assert sorted(frame.sid for frame in there.frames()) == [b"1", b"2", b"3"]
    assert b.cluster.routes[a.node.server_id].in_msgs == 1


def test_interest_ends_with_the_client(net: SimNet) -> None:
    a, b, _ = three(net)
    there = b.client()
    say(net, there, b"SUB x 1\r\nSUB y Q 2\r\n")
    assert a.cluster.routes[b.node.server_id].num_subscriptions >= 2
    before = a.cluster.routes[b.node.server_id].num_subscriptions
    there.session.connection_lost()
    b.wake()
    net.run(LONG_NS)
    assert a.cluster.routes[b.node.server_id].num_subscriptions == before - 2


def test_interest_ends_with_the_route(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB x 1\r\n")
    net.kill("b")
    net.run(LONG_NS)
    say(net, here, b"SUB _INBOX.q.* 1\r\nPUB x _INBOX.q.1 1\r\n?\r\n")
    assert here.frames()[0].headers.startswith(b"NATS/1.0 503")


def test_a_message_that_came_by_a_route_goes_no_further(net: SimNet) -> None:
    a, b, c = three(net)
    clients = [each.client() for each in (a, b, c)]
    for client in clients:
        say(net, client, b"SUB > 1\r\n")
    publish(net, clients[0], b"x", b"1")
    assert [len(client.frames()) for client in clients] == [1, 1, 1]


def test_ten_thousand_subscriptions_reach_a_new_server(net: SimNet) -> None:
    a = net.start("a")
    there = a.client()
    there.send(b"".join(b"SUB s.%d %d\r\n" % (n, n) for n in range(10_000)))
    a.wake()
    b = net.start("b", "a")
    net.run_until(net.whole)
    assert b.cluster.routes[a.node.server_id].num_subscriptions >= 10_000
    publish(net, b.client(), b"s.9999", b"x")
    assert there.payloads() == [b"x"]


# -- silence ---------------------------------------------------------------------------------------------------


def test_a_silent_server_is_noticed_and_passed_over_by_queue_groups(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    for client in (there, far):
        say(net, client, b"SUB q G 1\r\n")
    net.pause("c")
    net.run(400 * NS_PER_MS)
    assert logged(a, "no heartbeat for 3")
    for _ in range(20):
        publish(net, here, b"q", b"")
    assert len(there.frames()) == 20
    net.resume("c")
    net.run(200 * NS_PER_MS)
    assert logged(a, "the heartbeat is back")


def test_a_lost_connection_of_heartbeats_is_opened_again(net: SimNet) -> None:
    servers = three(net)
    net.run(NS_PER_S)
    for each in servers:
        for connection in list(each.cluster.pulse.connections.values()):
            connection.link.close()
    net.run(NS_PER_S)
    assert [len(each.cluster.routes) for each in servers] == [2, 2, 2]
    assert [len(each.cluster.pulse.connections) for each in servers] == [2, 2, 2]
    net.pause("c")
    net.run(500 * NS_PER_MS)
    assert logged(servers[0], "no heartbeat for")


def test_a_server_has_one_connection_of_each_kind_after_many_routes(net: SimNet) -> None:
    a, b, _ = three(net)
    for _ in range(10):
        a.cluster.routes[b.node.server_id].close("Test")
        net.run_until(net.whole)
        net.run(100 * NS_PER_MS)
    net.run(5 * NS_PER_S)
    open_wires = [wire for wire in a.wires if wire.open and wire.other.owner is b]
    assert len(open_wires) == 3  # connections for messages, for large messages, and for heartbeats


def test_the_only_members_get_messages_though_their_server_is_silent(net: SimNet) -> None:
    a, _, c = three(net)
    here, far = a.client(), c.client()
    say(net, far, b"SUB q G 1\r\n")
    net.pause("c")
    net.run(400 * NS_PER_MS)
    publish(net, here, b"q", b"x")
    net.resume("c")
    net.run(LONG_NS)
    assert far.payloads() == [b"x"]


def test_the_route_to_a_dead_server_is_closed_and_opens_again(net: SimNet) -> None:
    a, _, _ = three(net)
    net.pause("c")
    net.run(3 * NS_PER_S)
    assert len(a.cluster.routes) == 1
    net.resume("c")
    net.run_until(net.whole)


def test_a_server_that_was_stopped_does_not_blame_the_others(net: SimNet) -> None:
    _, _, c = three(net)
    net.pause("c")
    net.run(1500 * NS_PER_MS)
    net.resume("c")
    net.run(LONG_NS)
    assert len(c.cluster.routes) == 2
    assert not logged(c, "no heartbeat")


# -- clients ---------------------------------------------------------------------------------------------------


def infos(client: RawClient) -> list[dict[str, object]]:
    lines = client.take().split(b"\r\n")
    return [json.loads(line[5:]) for line in lines if line.startswith(b"INFO ")]


def test_clients_are_told_of_servers_that_come_and_go(net: SimNet) -> None:
    a = net.start("a")
    client = a.client()
    b = net.start("b", "a")
    net.run_until(net.whole)
    net.run(LONG_NS)
    assert infos(client)[-1]["connect_urls"] == ["10.0.0.1:4222", "10.0.0.2:4222"]
    b.node.start_lame_duck()
    b.wake()
    net.run(LONG_NS)
    assert infos(client)[-1]["connect_urls"] == ["10.0.0.1:4222"]


def test_info_names_the_cluster(net: SimNet) -> None:
    a = net.start("a")
    assert json.loads(a.client().info[5:])["cluster"] == "SIM"


# -- strangers -------------------------------------------------------------------------------------------------

NATS_SERVER_INFO = (
    b'INFO {"server_id":"NABC","server_name":"go-1","version":"2.15.1","proto":1,"port":6222}\r\n'
)
NATS_SERVER_CONNECT = b'CONNECT {"name":"go-1","cluster":"SIM","lnoc":true,"tls_required":false}\r\n'


class Stranger:
    """A connection to the route port of a server, which sends raw bytes."""

    def __init__(self, net: SimNet, server: SimServer) -> None:
        from pyjs.core.link import Peer
        from pyjs.testing import MemoryLink

        self.net, self.server = net, server
        self.link = MemoryLink()
        self.route = server.cluster.open_route(Peer("10.9.9.9", 1), self.link)
        server.wake()

    def send(self, data: bytes) -> bytes:
        self.route.receive_data(data)
        self.server.wake()
        out, self.link.data = self.link.data, b""
        return out

    def enter(self) -> None:
        hello = {
            "pyjs_route": 4,
            "server_id": "NSTRANGER",
            "server_name": "s",
            "cluster": "SIM",
            "host": "",
            "port": PORT,
        }
        assert b"+OK\r\n" in self.send(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")


def frame(kind: int, body: bytes, account: int = 0, size: int | None = None) -> bytes:
    length = len(body) if size is None else size
    return length.to_bytes(4, "little") + account.to_bytes(4, "little") + bytes([kind, 0, 0, 0]) + body


def test_a_nats_server_is_refused_by_name_on_both_sides(net: SimNet) -> None:
    a = net.start("a")
    answer = Stranger(net, a).send(NATS_SERVER_CONNECT)
    assert b"is a nats-server, whose route protocol pyjs-server does not speak" in answer
    assert logged(a, "'go-1' is a nats-server, whose route protocol pyjs-server does not speak")


def test_an_older_version_of_the_route_protocol_is_refused(net: SimNet) -> None:
    a = net.start("a")
    answer = Stranger(net, a).send(b'CONNECT {"pyjs_route":1,"server_id":"N"}\r\n')
    assert b"route protocol '1' instead of 4: use one version of pyjs-server" in answer


@pytest.mark.parametrize(
    "line",
    [
        b"CONNECT {]\r\n",
        b"CONNECT []\r\n",
        b"PING\r\n",
        b"\x00\xff\x00\r\n",
        b'CONNECT {"pyjs_route":4,"server_id":"","port":1}\r\n',
        b'CONNECT {"pyjs_route":4,"server_id":"N","port":99999999999999999999}\r\n',
        b'CONNECT {"pyjs_route":4,"server_id":"N","port":1,"connect_urls":[1]}\r\n',
        b'CONNECT {"pyjs_route":4,"server_id":7,"port":1}\r\n',
        b"CONNECT " + b"[" * 60_000 + b"\r\n",
        b"x" * 70_000,
    ],
)
def test_a_greeting_that_is_none_is_refused(net: SimNet, line: bytes) -> None:
    a = net.start("a")
    stranger = Stranger(net, a)
    assert b"-ERR '" in stranger.send(line)
    assert stranger.link.closed
    assert not a.cluster.greeting


def test_a_greeting_that_takes_too_long_is_closed(net: SimNet) -> None:
    a = net.start("a")
    stranger = Stranger(net, a)
    stranger.send(b"CONN")
    net.run(3 * NS_PER_S)
    assert stranger.link.closed
    assert logged(a, "Authentication Timeout")


@pytest.mark.parametrize(
    "data",
    [
        frame(0, b""),
        frame(99, b""),
        frame(3, b"", size=2**32 - 1),
        frame(2, b"", size=2**21),
        frame(3, b"x"),
        frame(3, b"\xff" * 24),
        frame(3, (1).to_bytes(4, "little") * 6 + b"xyz"),
        frame(2, b"\x01\x00\x00\x00\x01\x00\x00\x00x", account=5),
        frame(1, b"$G", account=3),
        frame(1, b"$G") + frame(2, b"\x01\x00\x00\x00\xff\x00\x00\x00x"),
        frame(1, b"$G") + frame(2, b"\x01\x00\x00\x00\x03\x00\x00\x00a b"),
        frame(6, b"[]"),
        frame(6, b'{"peers":[{"id":1}]}'),
        frame(6, b"{" * 1000),
    ],
)
def test_frames_that_are_none_end_the_route_and_nothing_else(net: SimNet, data: bytes) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, there, b"SUB x 1\r\n")
    stranger = Stranger(net, a)
    stranger.enter()
    stranger.send(data)
    assert stranger.link.closed
    assert any(level == "ERR" for level, _ in a.log.lines)
    publish(net, here, b"x", b"still here")
    assert there.payloads() == [b"still here"]


def test_a_message_with_a_false_tail_is_refused(net: SimNet) -> None:
    a, _, _ = three(net)
    here = a.client()
    say(net, here, b"SUB x 1\r\n")
    stranger = Stranger(net, a)
    stranger.enter()
    stranger.send(frame(1, b"$G"))
    tail = b"9\r\nhi\r\n"  # declares 9 bytes but has 2
    fixed = b"".join(n.to_bytes(4, "little") for n in (1, 0, 0, 2, 0, 0))
    stranger.send(
        (len(fixed) + 1 + len(tail)).to_bytes(4, "little")
        + bytes(4)
        + bytes([3, 1, 0, 0])
        + fixed
        + b"x"
        + tail
    )
    assert stranger.link.closed
    assert here.frames() == []


def test_reads_of_any_size_give_the_same_messages(net: SimNet) -> None:
    a, _, _ = three(net)
    here = a.client()
    say(net, here, b"SUB x 1\r\n")
    stranger = Stranger(net, a)
    stranger.enter()
    sent = [bytes([65 + n % 26]) * (n * 37 % 300) for n in range(60)]
    data = frame(1, b"$G")
    for payload in sent:
        tail = b"%d\r\n%b\r\n" % (len(payload), payload)
        fixed = b"".join(n.to_bytes(4, "little") for n in (1, 0, 0, len(payload), 0, 0))
        body = fixed + b"x" + tail
        data += len(body).to_bytes(4, "little") + bytes(4) + bytes([3, 1, 0, 0]) + body
    at = 0
    for size in [1, 5, 11, 12, 13, 64, 3, 200] * 1000:
        stranger.send(data[at : at + size])
        at += size
        if at >= len(data):
            break
    assert here.payloads() == sent


def test_two_equal_requests_have_different_numbers_which_are_the_same_at_all_servers(net: SimNet) -> None:
    servers, requests = three(net), []
    for server in servers:
        found: list[Request] = []
        server.node.accounts["$G"].subscribe_handler(b"$JS.API.X", found.append)
        requests.append(found)
    net.run(LONG_NS)
    client, other = servers[0].client(), servers[1].client()
    say(net, client, b"PUB $JS.API.X in.x 0\r\n\r\n" * 2)
    say(net, client, b"HPUB $JS.API.X in.x 12 12\r\nNATS/1.0\r\n\r\n\r\n")
    say(net, other, b"PUB $JS.API.X in.x 0\r\n\r\n")
    seen = [[request.number for request in found] for found in requests]
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 4
