"""Events of a node on a virtual clock: no subscriber, many clients in one turn, and statistics over time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjs.config.load import load_options
from pyjs.monitor.state import Monitored, ProcessStats
from pyjs.system_account.answers import Answers
from pyjs.system_account.events import QUEUE_MAX, STEP, SystemEvents, client_fields
from pyjs.testing import RawClient, VirtualNode

CONFIG = """
accounts {
    OPS { users: [{user: ops, password: o}] }
    A { users: [{user: a, password: a}] }
}
system_account: OPS
"""
A = b'{"user":"a","pass":"a","name":"some"}'


class Heard(VirtualNode):
    """A node with system events; `listener` is a client of the system account."""

    def __init__(self) -> None:
        super().__init__(load_options("server.conf", lambda path: CONFIG, {}, {}))
        self.composed = 0
        self.node.events = self.events = SystemEvents(self.node, self.answers)
        self.listener = self.client(b'{"user":"ops","pass":"o"}')

    def answers(self) -> Answers:
        self.composed += 1
        return Answers(Monitored(self.node, self.options, ProcessStats(), 0, True))

    def listen(self, subject: bytes) -> None:
        self.listener.send(b"SUB %b 7\r\n" % subject)
        self.listener.take()

    def heard(self) -> list[tuple[str, dict[str, Any]]]:
        return [(f.subject.decode(), json.loads(f.payload)) for f in self.listener.frames()]


@pytest.fixture
def node() -> Heard:
    return Heard()


def test_what_nobody_listens_to_is_not_composed(node: Heard) -> None:
    node.client(A).session.connection_lost()
    node.advance(seconds=100)
    assert node.composed == 0


def test_a_burst_of_clients_is_told_in_steps_and_an_account_once_a_turn(node: Heard) -> None:
    node.listen(b"$SYS.ACCOUNT.>")
    clients: list[RawClient] = [node.client(A) for _ in range(5 * STEP)]
    assert sum(subject.endswith("A.CONNECT") for subject, _ in node.heard()) == len(clients)
    for client in clients:
        client.session.connection_lost()  # all in one turn
    waiting = len(node.events._queue)
    next(node.events._publish_steps())
    assert len(node.events._queue) == waiting - STEP
    node.advance(seconds=1)
    rest = node.heard()
    assert sum(subject.endswith("A.DISCONNECT") for subject, _ in rest) == len(clients)
    assert sum(subject.endswith(".CONNS") for subject, _ in rest) <= 2


def test_the_queue_has_an_end(node: Heard) -> None:
    node.listen(b"$SYS.ACCOUNT.>")
    session = node.client(A).session
    for _ in range(QUEUE_MAX + 10):
        node.events.closed(session)
    assert len(node.events._queue) == QUEUE_MAX


def test_a_token_is_not_told() -> None:
    options = load_options("server.conf", lambda path: "authorization { token: secret }", {}, {})
    node = VirtualNode(options)
    told = [
        client_fields(node.client(b'{"auth_token":"%b"}' % token).session) for token in (b"secret", b"wrong")
    ]
    assert [fields["user"] for fields in told] == ["[REDACTED]"] * 2
    assert "secret" not in str(told)
    assert "wrong" not in str(told)


def test_statistics_and_connections_come_again_and_again(node: Heard) -> None:
    node.listen(b"$SYS.SERVER.>")
    client = node.client(A)
    node.advance(seconds=95)
    heard = [subject for subject, _ in node.heard()]
    assert (
        sum(subject.endswith(".STATSZ") for subject in heard) == 6 + 7
    )  # after 0.25 s, 0.5 s more, and so on; then every 10 s
    assert heard.count("$SYS.SERVER.ACCOUNT.A.CONNS") == 1 + 2
    assert client.session.connected


def test_the_figures_of_an_account_include_clients_that_have_gone(node: Heard) -> None:
    client = node.client(A)
    client.send(b"PUB x 3\r\nabc\r\n")
    client.session.connection_lost()
    node.listen(b"$SYS.ACCOUNT.A.SERVER.CONNS")
    node.client(A)
    ((_, event),) = node.heard()
    assert (event["conns"], event["received"]["msgs"], event["received"]["bytes"]) == (1, 1, 3)
