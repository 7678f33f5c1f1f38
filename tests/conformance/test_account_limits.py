"""Limits of accounts, as clients see them, are those of nats-server; a reload applies them to connected clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
accounts {
    SYS { users: [{user: sys, password: sys}] }
    A { users: [{user: a, password: a}], limits { max_subs: 3, max_conn: 3 } }
}
system_account: SYS
"""
TOO_MANY = b"-ERR 'maximum subscriptions exceeded'"


def client(server: ServerProcess, user: str = "a") -> RawClient:
    """Connect; the client itself has one subscription."""
    fields = json.dumps({"user": user, "pass": user, "verbose": False}).encode()
    return RawClient(server.port, connect=b"CONNECT %b\r\n" % fields)


def subscribe(asked: RawClient, count: int) -> int:
    """Return how many of `count` subscriptions were refused."""
    for number in range(count):
        asked.send(b"SUB some.subject %d\r\n" % (100 + number))
    asked.send(b"PING\r\n")
    return asked.read_until(b"PONG\r\n").count(TOO_MANY)


def reload(server: ServerProcess, admin: RawClient, directory: Path, before: str, after: str) -> None:
    path = next(path for path in directory.glob("*/*.conf") if str(server.port) in path.read_text())
    path.write_text(path.read_text().replace(before, after))
    server_id = json.loads(admin.request(b"$SYS.REQ.SERVER.PING.IDZ"))["id"]
    assert "error" not in json.loads(admin.request(b"$SYS.REQ.SERVER.%b.RELOAD" % server_id.encode()))


def test_max_subs_counts_the_subscriptions_of_each_connection(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        clients = [client(server) for _ in range(3)]
        return [subscribe(each, count) for each, count in zip(clients, (2, 5, 2), strict=True)]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == [0, 3, 0]


def test_fewer_connections_after_a_reload_close_those_beyond(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin, clients = client(server, "sys"), [client(server) for _ in range(3)]
        for each in clients:
            each.fence()
        reload(server, admin, tmp_path, "max_conn: 3", "max_conn: 1")
        told = []
        for each in clients:
            try:
                each.fence()
            except ConnectionError:
                told.append("closed")
        page = json.loads(admin.request(b"$SYS.REQ.SERVER.PING.CONNZ", b'{"state": 1}'))
        return told, sorted(each["reason"] for each in page["data"]["connections"])

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours[0] == ["closed"] * 2


def test_fewer_subscriptions_after_a_reload_are_told(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin, asked = client(server, "sys"), client(server)
        refused = subscribe(asked, 2)
        reload(server, admin, tmp_path, "max_subs: 3", "max_subs: 2")
        asked.read_until(TOO_MANY)
        return refused, subscribe(asked, 0)

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == (0, 0)


def test_a_smaller_payload_after_a_reload_holds_at_once(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin, asked = client(server, "sys"), client(server)
        asked.fence()
        reload(server, admin, tmp_path, "max_subs: 3", "max_subs: 3, max_payload: 4")
        asked.send(b"PUB x 5\r\nabcde\r\n")
        asked.read_until(b"-ERR 'Maximum Payload Violation'")
        with pytest.raises(ConnectionError):
            asked.fence()

    of_both(tmp_path, CONFIG, look)
