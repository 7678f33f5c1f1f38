import socket

import pytest

from pyjs.config.options import Options
from pyjs.server import addresses
from pyjs.server.addresses import ListenFailed, client_urls, host_port, listen, local_ips, plain_ip, urls


def connects(family: socket.AddressFamily, host: str, port: int) -> bool:
    """Return whether a process listens at `host` and `port`."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        return client.connect_ex((host, port)) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_listens_on_both_families(host: str) -> None:
    with listen(host, -1) as sock:
        port = sock.getsockname()[1]

        assert connects(socket.AF_INET, "127.0.0.1", port)
        assert connects(socket.AF_INET6, "::1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_host_listens_only_there(host: str) -> None:
    with listen(host, -1) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
        assert sock.getsockname()[1] > 0


def test_an_ipv6_host_listens_there() -> None:
    with listen("::1", -1) as sock:
        assert connects(socket.AF_INET6, "::1", sock.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_refused(host: str) -> None:
    with listen(host, -1) as sock:
        port = sock.getsockname()[1]

        with pytest.raises(ListenFailed) as caught:
            listen(host, port)

    assert str(caught.value) == f"listen tcp {host}:{port}: bind: address already in use"


def test_a_port_out_of_range_is_refused() -> None:
    with pytest.raises(ListenFailed, match=r"^listen tcp: address 99999: invalid port$"):
        listen("127.0.0.1", 99999)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(
        ListenFailed, match=r"^listen tcp 203.0.113.77:0: bind: cannot assign requested address$"
    ):
        listen("203.0.113.77", -1)


def test_an_unknown_host_is_refused() -> None:
    with pytest.raises(ListenFailed, match=r"^listen tcp: lookup nosuch.invalid: "):
        listen("nosuch.invalid", -1)


def test_without_ipv6_a_wildcard_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_ipv6", False)

    with listen("0.0.0.0", -1) as sock:
        assert sock.family == socket.AF_INET


@pytest.mark.parametrize(
    ("ip", "plain"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("::1", "::1")],
)
def test_a_peer_is_shown_by_its_plain_address(ip: str, plain: str) -> None:
    assert plain_ip(ip) == plain


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert host_port("::1", 4222) == "[::1]:4222"
    assert host_port("127.0.0.1", 4222) == "127.0.0.1:4222"


def test_a_wildcard_is_reached_by_every_local_address() -> None:
    listed = urls("nats", "0.0.0.0", 4222)

    assert "nats://127.0.0.1:4222" in listed
    assert len(listed) == len(local_ips())
    assert urls("http", "127.0.0.1", 1) == ["http://127.0.0.1:1"]


def test_without_ipv6_addresses_the_others_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "IF_INET6", "/nonexistent")

    assert "127.0.0.1" in local_ips()


@pytest.mark.parametrize(
    ("advertised", "told"),
    [("", "127.0.0.1:4222"), ("a", "a:4222"), ("a:0", "a:4222"), ("a:5", "a:5"), ("[::1]", "[::1]:4222")],
)
def test_clients_are_told_the_advertised_address_with_its_port(advertised: str, told: str) -> None:
    assert client_urls(Options(host="127.0.0.1", client_advertise=advertised), 4222) == [told]
