"""Requests across accounts on a virtual clock: tokens and when they end, and chains of imports."""

from __future__ import annotations

import re

import pytest

from pyjs.config.load import load_options
from pyjs.core.exchange.responses import Responses
from pyjs.testing import CONNECT, RawClient, VirtualNode

ACCOUNTS = """
accounts {
    S {
        users: [{user: s, password: pw}]
        exports: [{service: help, response_threshold: "10s"}, {service: many, response_type: stream}]
    }
    U {
        users: [{user: u, password: pw}]
        imports: [{service: {account: S, subject: help}}, {service: {account: S, subject: many}}]
    }
}
"""


class Scene:
    """A service in account S and a client in account U."""

    def __init__(self, text: str) -> None:
        self.fixture = VirtualNode(
            load_options("server.conf", lambda path: f'ping_interval: "1h"\n{text}', {}, {})
        )
        self.service, self.client = self.user("s"), self.user("u")
        self.service.send(b"SUB help 1\r\nSUB many 2\r\n")
        self.client.send(b"SUB inbox 1\r\n")

    def user(self, name: str) -> RawClient:
        return self.fixture.client(CONNECT[:-1] + b',"user":"%b","pass":"pw"}' % name.encode())

    def ask(self, subject: bytes = b"help") -> bytes:
        """Send a request; return the token that the service received."""
        self.client.send(b"PUB %b inbox 2\r\nhi\r\n" % subject)
        (token,) = re.findall(rb"_R_\.[\w.]+", self.service.take())
        return bytes(token)

    def answer(self, token: bytes, text: bytes = b"ok") -> bytes:
        """Answer the request of a token; return the bytes that the client gets."""
        self.service.send(b"PUB %b %d\r\n%b\r\n" % (token, len(text), text))
        return self.client.take()

    def waiting(self) -> int:
        responses = self.fixture.node.accounts["S"].responses
        assert isinstance(responses, Responses)
        return responses.num_waiting


@pytest.fixture
def scene() -> Scene:
    return Scene(ACCOUNTS)


def test_a_token_is_used_up_by_its_response(scene: Scene) -> None:
    token = scene.ask()
    assert scene.waiting() == 1
    assert b"ok" in scene.answer(token)
    assert scene.waiting() == 0
    assert scene.answer(token) == b""


def test_tokens_have_119_bits_and_do_not_repeat(scene: Scene) -> None:
    tokens = {scene.ask() for _ in range(600)}
    assert len(tokens) == 600
    assert {len(token.split(b".")[-1]) for token in tokens} == {20}


def test_a_token_ends_after_the_threshold(scene: Scene) -> None:
    early = scene.ask()
    scene.fixture.advance(seconds=6)
    late = scene.ask()
    scene.fixture.advance(seconds=5)
    assert scene.waiting() == 1
    assert b"ok" not in scene.answer(early)
    assert b"ok" in scene.answer(late)
    scene.fixture.advance(seconds=20)
    assert scene.fixture.node.next_deadline_ns() is None or scene.waiting() == 0


def test_a_response_extends_the_time_of_a_stream(scene: Scene) -> None:
    token = scene.ask(b"many")
    for _ in range(3):
        scene.fixture.advance(seconds=100)
        assert b"ok" in scene.answer(token)
    scene.fixture.advance(seconds=130)
    assert scene.answer(token) == b""


def test_an_empty_response_ends_a_stream(scene: Scene) -> None:
    token = scene.ask(b"many")
    assert b"MSG inbox" in scene.answer(token, b"")
    assert scene.waiting() == 0


def test_a_response_that_nobody_receives_ends_a_stream(scene: Scene) -> None:
    token = scene.ask(b"many")
    scene.client.send(b"UNSUB 1\r\n")
    assert scene.answer(token) == b""
    assert scene.waiting() == 0


def test_a_request_without_service_leaves_no_token(scene: Scene) -> None:
    scene.service.send(b"UNSUB 1\r\n")
    scene.client.send(b"PUB help inbox 2\r\nhi\r\n")
    assert scene.waiting() == 0


def test_a_client_that_leaves_does_not_disturb_the_service(scene: Scene) -> None:
    token = scene.ask()
    scene.client.session.connection_lost()
    scene.service.send(b"PUB %b 2\r\nok\r\n" % token)
    assert scene.waiting() == 0


def chain(count: int) -> str:
    """Return accounts, each of which imports a service of the previous one."""
    blocks = ["A0 { users: [{user: s, password: pw}], exports: [{service: help}] }"]
    for number in range(1, count):
        last = "users: [{user: u, password: pw}]" if number == count - 1 else ""
        source = f"imports: [{{service: {{account: A{number - 1}, subject: help}}}}]"
        blocks.append(f"A{number} {{ {last}\n{source}\nexports: [{{service: help}}] }}")
    return "accounts {\n" + "\n".join(blocks) + "\n}"


@pytest.mark.parametrize(("count", "reaches"), [(2, True), (10, True), (17, True), (18, False), (200, False)])
def test_the_way_of_a_message_over_services_is_bounded(count: int, reaches: bool) -> None:
    scene = Scene(chain(count))
    scene.client.send(b"PUB help inbox 2\r\nhi\r\n")
    asked = scene.service.take()
    assert (b"_R_." in asked) == reaches
    if reaches:
        (token,) = re.findall(rb"_R_\.[\w.]+", asked)
        assert b"ok" in scene.answer(token)
        assert asked.count(b'"svc":') == (count > 2)


def test_a_service_of_everything_does_not_loop() -> None:
    text = """
    accounts {
        S { users: [{user: s, password: pw}], exports: [{service: ">"}] }
        U { users: [{user: u, password: pw}], imports: [{service: {account: S, subject: ">"}}] }
    }
    """
    scene = Scene(text)
    scene.client.send(b"PUB help inbox 2\r\nhi\r\n")
    asked = scene.service.take()
    for token in re.findall(rb"_R_\.[\w.]+", asked):
        scene.answer(token)
    assert b"hi" in asked
