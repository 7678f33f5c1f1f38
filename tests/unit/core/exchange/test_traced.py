"""Messages that cross an import: those with a trace request, and those that a deny list filters."""

from __future__ import annotations

import pytest

from pyjs.config.load import load_options
from pyjs.testing import CONNECT, RawClient, VirtualNode

ACCOUNTS = """
accounts {
    A { users: [{user: a, password: pw}], exports: [{service: "svc.>"}, {stream: "st.>"}] }
    B {
        users: [
            {user: b, password: pw}
            {user: limited, password: pw, permissions: {subscribe: {deny: ["in.st.secret", "in.st.> workers"]}}}
        ]
        imports: [
            {service: {account: A, subject: "svc.>"}}
            {stream: {account: A, subject: "st.>"}, prefix: in}
        ]
    }
}
"""
TRACED = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
TRACE_ONLY = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\nNats-Trace-Only: true\r\n\r\n"


@pytest.fixture
def node() -> VirtualNode:
    return VirtualNode(load_options("server.conf", lambda path: ACCOUNTS, {}, {}))


def user(node: VirtualNode, name: str) -> RawClient:
    return node.client(CONNECT[:-1] + b',"user":"%b","pass":"pw"}' % name.encode())


def published(headers: bytes, subject: bytes) -> bytes:
    return b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(headers), len(headers), headers)


def test_a_traced_request_reaches_the_service_of_another_account(node: VirtualNode) -> None:
    service, client = user(node, "a"), user(node, "b")
    service.send(b"SUB svc.x 1\r\n")
    client.send(b"SUB inbox 1\r\n" + published(TRACED, b"svc.x inbox"))
    request = service.frames()[-1]
    service.send(b"PUB %b 2\r\nok\r\n" % request.reply)
    assert request.subject == b"svc.x"
    assert client.payloads() == [b"ok"]


def test_a_traced_message_reaches_the_importer_of_a_stream(node: VirtualNode) -> None:
    origin, client = user(node, "a"), user(node, "b")
    client.send(b"SUB in.st.* 1\r\n")
    origin.send(published(TRACED, b"st.1"))
    assert [frame.subject for frame in client.frames()] == [b"in.st.1"]


@pytest.mark.parametrize("subject", [b"svc.x", b"st.x"])
def test_a_trace_only_message_does_not_leave_its_account(node: VirtualNode, subject: bytes) -> None:
    service, client = user(node, "a"), user(node, "b")
    service.send(b"SUB svc.x 1\r\n")
    client.send(b"SUB in.st.x 1\r\n")
    publisher = client if subject == b"svc.x" else service
    publisher.send(published(TRACE_ONLY, subject))
    assert service.frames() == client.frames() == []


def test_a_deny_list_filters_the_messages_of_a_wildcard_subscription_across_an_import(
    node: VirtualNode,
) -> None:
    origin, client = user(node, "a"), user(node, "limited")
    client.send(b"SUB in.st.* 1\r\n")
    origin.send(b"PUB st.secret 1\r\ns\r\nPUB st.open 1\r\no\r\n")
    assert client.payloads() == [b"o"]
