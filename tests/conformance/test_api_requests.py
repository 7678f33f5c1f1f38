"""Requests to the JetStream API: which count, and which the system account sees, on both servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.test_advisories import client
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
accounts {
    A { jetstream: enabled, users: [{user: a, password: a}] }
    B { users: [{user: b, password: a}] }
    SYS { users: [{user: sys, password: a}] }
}
system_account: SYS
jetstream { store_dir: "<<store>>" }
"""
REQUESTS = (b"INFO", b"STREAM.INFO.S", b"STREAM.NAMES", b"NO.SUCH")


def test_requests_of_accounts_without_jetstream_do_not_count(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> list[tuple[int, int]]:
        system = client(server, "sys", b"_INBOX.sys")
        found = []
        for asker in (client(server, "a"), client(server, "b"), system):
            for request in REQUESTS:
                asker.send(b"PUB $JS.API.%b %b.x 0\r\n\r\n" % (request, asker.inbox))
            asker.fence()
            found.append(counted(system))
        return found

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == [(3, 1)] * 3


def counted(system: RawClient) -> tuple[int, int]:
    """Return the numbers of requests and errors; nats-server counts some time after its answer."""
    for _ in range(100):
        api = json.loads(system.request(b"$SYS.REQ.SERVER.PING.JSZ"))["data"]["api"]
        if api["total"] >= 3 and api["errors"]:
            break
    return api["total"], api["errors"]


FORGED = b'NATS/1.0\r\nNats-Request-Info: {"acc":"ADMIN"}\r\nA: b\r\n\r\n'


def test_clients_of_the_system_account_may_watch_the_requests_of_all_accounts(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        system, asker = client(server, "sys", b"_INBOX.sys"), client(server, "a")
        system.send(b"SUB $JS.API.> 5\r\n")
        system.fence()
        asker.request(b"$JS.API.STREAM.NAMES", b"{}")
        asker.send(
            b"HPUB $JS.API.INFO %b.x %d %d\r\n%b\r\n" % (asker.inbox, len(FORGED), len(FORGED), FORGED)
        )
        asker.fence()
        frames = system.frames()
        return [watched(*next(frames)) for _ in range(2)]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert "ADMIN" not in str(ours)


def watched(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> Any:
    """Return a frame without the parts that differ; only the server uses the reply."""
    (info,) = re.findall(rb"Nats-Request-Info: (.*)\r\n", headers)
    fields = json.loads(info)
    told = {name: fields[name] for name in ("acc", "user", "server", "kind", "client_type", "host")}
    return subject, b"A: b" in headers, payload, sorted(fields.keys() - {"rtt"}), told


def test_a_client_of_the_system_account_cannot_answer_for_an_account(tmp_path: Path) -> None:
    """Nor for the system account: messages that it sees this way have no effect in its own account."""

    def look(server: ServerProcess) -> Any:
        system, asker = client(server, "sys", b"_INBOX.sys"), client(server, "a")
        system.send(b"SUB $JS.API.> 5\r\n")
        system.fence()
        made = asker.api("STREAM.CREATE.S", name="S", subjects=["s"])["config"]["name"]
        next(system.frames())
        return made, asker.api("STREAM.NAMES")["streams"]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == ("S", ["S"])
