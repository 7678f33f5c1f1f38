from __future__ import annotations

import pytest

from pyjs.config.options import ClusterOptions
from pyjs.config.ports.advertised import BadAddress, advertised_address, is_advertised

OWN = 4222


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example.com", ("example.com", OWN)),
        ("example.com.", ("example.com.", OWN)),
        ("a_b-c:5", ("a_b-c", 5)),
        ("äö:5", ("äö", 5)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[::1]", ("::1", OWN)),
        ("[fe80::1%eth0]:5", ("fe80::1%eth0", 5)),
        ("[example.com]:5", ("example.com", 5)),
        # nats-server 2.15.1 uses its own port for these
        ("a:0", ("a", OWN)),
        ("a:-1", ("a", OWN)),
        (" a:5 ", ("a", 5)),
        ("a: 5", ("a", 5)),
    ],
)
def test_an_address_has_a_host_and_a_port_or_that_of_the_server(text: str, address: tuple[str, int]) -> None:
    assert advertised_address(text, OWN) == address
    assert is_advertised(text)


@pytest.mark.parametrize(
    "text",
    [
        *(":4222", ":", " ", "[]", "[]:1", "a..b:1", ".", "-" * 254),
        *("[x]y:1", "[::1", "::1]:5", "[::1]5", "[::1]:", "[1:2]:3", "::1", "[" * 100_000),
        *("a b:1", "a\tb", "\0a", "user@a:1", "nats://a:1", "a/b:1", "a,b", "*:1", "a?b", "a#b", "a%b"),
        *("a:", "a:b", "a:b:c", "a:-2", "a:+5", "a:65536", "a:\u00b2", "a:" + "9" * 5000),
    ],
)
def test_an_address_to_which_no_program_can_connect_is_refused(text: str) -> None:
    assert not is_advertised(text)
    with pytest.raises(BadAddress):
        advertised_address(text, OWN)


def test_an_empty_address_means_that_none_is_advertised() -> None:
    assert is_advertised("")
    assert ClusterOptions().advertised is None


def test_a_cluster_advertises_its_own_port_with_a_host_alone() -> None:
    assert ClusterOptions(port=6222, advertise="[::1]").advertised == ("::1", 6222)
    assert ClusterOptions(port=-1, advertise="a").advertised == ("a", 0)
    assert ClusterOptions(port=6222, advertise="a:5").advertised == ("a", 5)
