"""In a cluster, traced messages go to the same members of queue groups as other messages."""

from __future__ import annotations

import pytest
from tests.support.simnet import SimNet, say, three

from pyjs.base.clock import NS_PER_MS

HEADERS = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
TRACED = b"HPUB q %d %d\r\n%b\r\n" % (len(HEADERS), len(HEADERS), HEADERS)


@pytest.fixture
def net() -> SimNet:
    return SimNet(seed=1)


def test_a_member_here_is_preferred(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    for client in (here, there):
        say(net, client, b"SUB q G 1\r\n")
    say(net, here, TRACED * 40)
    assert (len(here.frames()), len(there.frames())) == (40, 0)


def test_other_servers_are_chosen_by_the_number_of_their_members(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    say(net, there, b"SUB q G 1\r\nSUB q G 2\r\nSUB q G 3\r\n")
    say(net, far, b"SUB q G 1\r\n")
    say(net, here, TRACED * 400)
    many, few = len(there.frames()), len(far.frames())
    assert many + few == 400
    assert 60 <= few <= 140


def test_a_silent_server_is_passed_over(net: SimNet) -> None:
    a, b, c = three(net)
    here, there, far = a.client(), b.client(), c.client()
    for client in (there, far):
        say(net, client, b"SUB q G 1\r\n")
    net.pause("c")
    net.run(400 * NS_PER_MS)
    say(net, here, TRACED * 20)
    assert len(there.frames()) == 20


def test_a_member_that_refuses_is_passed_over(net: SimNet) -> None:
    a, b, _ = three(net)
    here, there = a.client(), b.client()
    say(net, here, b"SUB q G 1\r\nUNSUB 1 2\r\n")
    say(net, there, b"SUB q G 1\r\n")
    say(net, here, TRACED * 5)
    assert (len(here.frames()), len(there.frames())) == (2, 3)
