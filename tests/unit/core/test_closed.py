"""Closed connections in monitoring: which ones are kept, which of their fields, and how much memory they use."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from pyjs.config.options import Options
from pyjs.core.closed import PACKED, ClosedSession, ClosedSubscription
from pyjs.testing import VirtualNode

NAMES = ("cid", "peer", "account", "user", "started_at_ns", "in_msgs", "in_bytes", "out_msgs", "out_bytes")


def ended(node: VirtualNode, number: int) -> SimpleNamespace:
    """Connect and disconnect a client; return the fields to be kept."""
    client = node.client(b'{"name":"n%d","lang":"go","version":"1.%d"}' % (number, number))
    client.send(b"SUB s.%d q %d\r\nPUB s.%d 2\r\nhi\r\n" % (number, number, number))
    session = client.session
    before = SimpleNamespace(**{name: getattr(session, name) for name in NAMES})
    before.shown = [
        (sub.subject, sub.queue, sub.sid, sub.delivered, sub.max) for sub in session.subscriptions.values()
    ]
    client.session.close("Client Closed")
    node.turn()
    return before


@pytest.mark.parametrize("most", [1, 10, PACKED, PACKED + 1, 200])
def test_the_last_ones_are_remembered_in_order(most: int) -> None:
    options = Options()
    options.limits.max_closed_clients = most
    node = VirtualNode(options)
    for number in range(3 * PACKED + 7):
        ended(node, number)
        closed = list(node.node.closed)
        assert len(closed) == len(node.node.closed) == min(most, number + 1)
    names = [each.options.name for each in closed]
    assert names == [f"n{number}" for number in range(3 * PACKED + 7)][-most:]


def test_what_is_packed_says_the_same_as_before() -> None:
    node = VirtualNode()
    wanted = [ended(node, number) for number in range(PACKED + 3)]
    for number, (closed, before) in enumerate(zip(node.node.closed, wanted, strict=True)):
        assert [getattr(closed, name) for name in NAMES] == [getattr(before, name) for name in NAMES]
        assert closed.account is before.account
        assert closed.user is before.user
        assert (closed.options.name, closed.options.lang) == (f"n{number}", "go")
        assert (closed.options.version, closed.num_subscriptions) == (f"1.{number}", 1)
        assert (closed.closed_reason, closed.closed_at_ns > 0) == ("Client Closed", True)
        assert list(closed.shown) == before.shown
        assert list(closed.subscriptions) == [b"%d" % number]


def test_what_ends_while_it_is_listed_is_not_in_the_list() -> None:
    node = VirtualNode()
    for number in range(2 * PACKED):
        ended(node, number)
    parts = node.node.closed.parts()
    for number in range(PACKED):
        ended(node, number)
    assert sum(len(some) for some in parts) == 2 * PACKED


def test_thousands_of_them_are_few_objects() -> None:
    node = VirtualNode()
    for number in range(20 * PACKED):
        ended(node, number)
    kept = [each for each in gc.get_objects() if isinstance(each, ClosedSession | ClosedSubscription)]
    assert len(kept) < 2 * PACKED
    assert len({id(piece.owners) for piece in node.node.closed._pieces}) == 1


def test_when_the_last_client_is_gone_nothing_of_a_crowd_is_left() -> None:
    node = VirtualNode()
    node.client().session.close("Client Closed")
    node.turn()
    tables = (node.node.sessions, node.node.accounts["$G"].sessions)
    alone = [sys.getsizeof(table) for table in tables]
    crowd = [node.client() for _ in range(300)]
    assert [sys.getsizeof(table) for table in tables] > alone
    for client in crowd:
        client.session.close("Client Closed")
    node.turn()
    assert [len(table) for table in tables] == [0, 0]
    assert [sys.getsizeof(table) for table in tables] <= alone
