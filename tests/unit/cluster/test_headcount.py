"""The number of an account's clients on all servers, limited by its max_connections."""

from __future__ import annotations

import pytest
from tests.fuzz.test_route_frames import frame
from tests.support.simnet import LONG_NS, SimNet, SimServer, say, three
from tests.unit.cluster.test_route import route_of

from pyjs.base.clock import NS_PER_S
from pyjs.config.options import AccountLimits, AccountOptions
from pyjs.core.auth.users import User
from pyjs.testing import RawClient

FULL = "Maximum Account Connections Exceeded"


@pytest.fixture
def net() -> SimNet:
    return SimNet(seed=5)


def limited(net: SimNet, most: int) -> tuple[SimServer, SimServer, SimServer]:
    servers = three(net)
    for each in servers:
        each.node.accounts["$G"].limits = AccountLimits(max_connections=most)
    return servers


def come(net: SimNet, server: SimServer) -> RawClient:
    client = server.client()
    say(net, client, b"PING\r\n")
    return client


def elsewhere(server: SimServer) -> int:
    return server.cluster.headcount.elsewhere(server.node.accounts["$G"])


def test_clients_of_all_servers_count(net: SimNet) -> None:
    a, b, c = limited(net, 3)
    for server in (a, b, c):
        assert come(net, server).session.closed_reason == ""
    assert come(net, b).session.closed_reason == FULL
    assert [elsewhere(each) for each in (a, b, c)] == [2, 2, 2]


def test_a_client_that_leaves_makes_room_elsewhere(net: SimNet) -> None:
    a, b, _ = limited(net, 1)
    first = come(net, a)
    assert come(net, b).session.closed_reason == FULL
    first.session.connection_lost()
    a.wake()
    net.run(LONG_NS)
    assert come(net, b).session.closed_reason == ""


def test_the_clients_of_a_lost_server_do_not_count(net: SimNet) -> None:
    a, b, _ = limited(net, 1)
    come(net, a)
    net.kill("a")
    net.run(NS_PER_S // 10)
    assert elsewhere(b) == 0


def test_a_new_server_is_told_of_the_clients(net: SimNet) -> None:
    a, *_ = limited(net, 5)
    come(net, a)
    d = net.start("d", "a")
    net.run_until(net.whole)
    net.run(LONG_NS)
    assert elsewhere(d) == 1


def test_the_newest_clients_leave_when_another_server_has_accepted_one_too_many(net: SimNet) -> None:
    server = net.start("a")
    server.node.accounts["$G"].limits = AccountLimits(max_connections=2)
    old, new = come(net, server), come(net, server)
    route = route_of(server)
    route.receive_data(frame(10, (1).to_bytes(4, "little")))
    server.wake()
    assert [old.session.closed_reason, new.session.closed_reason] == ["", FULL]


def test_a_lowered_limit_counts_the_clients_of_all_servers(net: SimNet) -> None:
    a, b, _ = limited(net, 3)
    far, old, new = come(net, b), come(net, a), come(net, a)
    a.node.accounts["$G"].limits = AccountLimits(max_connections=2)
    a.node.enforce_account_limits()
    assert [each.session.closed_reason for each in (far, old, new)] == ["", "", FULL]


def test_an_account_that_a_client_leaves_for_another_one_is_told(net: SimNet) -> None:
    a, b, _ = three(net)
    for each in (a, b):
        each.node.apply_account(AccountOptions("A"), "")
    client = come(net, a)
    assert elsewhere(b) == 1
    client.session.bind(User("u", "", "A"))
    a.wake()
    net.run(LONG_NS)
    assert elsewhere(b) == 0


@pytest.mark.parametrize(("account", "body"), [(7, b"\1\0\0\0"), (0, b"\1\0\0"), (0, b"")])
def test_a_number_of_clients_that_is_none_ends_the_route(net: SimNet, account: int, body: bytes) -> None:
    route = route_of(net.start("a"))
    route.receive_data(frame(10, body, account=account))
    assert route.closed_reason == "Protocol Violation"
