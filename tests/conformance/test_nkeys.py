"""Our server accepts and refuses users with nkeys as nats-server does."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerFailed, ServerProcess, our_command, peer_command
from tests.support.nkeys import ACCOUNT, Nkey

PEER = peer_command()
WAIT_S = 30.0
ALICE, BOB, NOBODY = Nkey("alice"), Nkey("bob"), Nkey("nobody")
USERS = (
    f"{{ nkey: {ALICE.public}, permissions: {{ publish: foo }} }}, {{ nkey: {BOB.public} }}, "
    "{ user: a, password: b }"
)
Sign = Callable[[str], str]
pytestmark = needs_peer


def log_in(port: int, connect: dict[str, Any], sign: Sign | None, more: bytes = b"") -> list[object]:
    """Connect with `connect` and the signature of the nonce; return fields of INFO and the server's answer."""
    with closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as sock, sock.makefile("rb") as lines:
        info = json.loads(lines.readline()[5:])
        nonce = info.get("nonce", "")
        said: list[object] = [len(nonce), info.get("auth_required")]
        signed = {"sig": sign(nonce)} if sign else {}
        body = json.dumps({"verbose": False, "protocol": 1, **connect, **signed}).encode()
        sock.sendall(b"CONNECT " + body + b"\r\n" + more + b"PING\r\n")
        while True:
            line = lines.readline().decode().strip()
            said.append(line)
            if line == "PONG":
                again = json.loads(lines.readline()[5:])
                return [*said, "nonce" in again, again.get("connect_info")]
            if not line:
                return said


ATTEMPTS: dict[str, tuple[dict[str, Any], Sign | None, bytes]] = {
    "signed": ({"nkey": ALICE.public}, ALICE.sign, b""),
    "signed in the other form": (
        {"nkey": ALICE.public},
        lambda nonce: ALICE.sign(nonce, url_safe=False),
        b"",
    ),
    "signed by another key": ({"nkey": ALICE.public}, BOB.sign, b""),
    "another nonce": ({"nkey": ALICE.public}, lambda nonce: ALICE.sign("AAAAAAAAAAAAAAA"), b""),
    "no signature": ({"nkey": ALICE.public}, None, b""),
    "no base 64": ({"nkey": ALICE.public, "sig": "!!"}, None, b""),
    "a key of nobody": ({"nkey": NOBODY.public}, NOBODY.sign, b""),
    "no key": ({"nkey": "U"}, ALICE.sign, b""),
    "a password": ({"user": "a", "pass": "b"}, None, b""),
    "the key in place of the user": ({"user": ALICE.public, "pass": ""}, None, b""),
    "key and password": ({"nkey": BOB.public, "user": "a", "pass": "b"}, BOB.sign, b""),
    "a password, and a key without signature": (
        {"nkey": BOB.public, "user": "a", "pass": "b"},
        None,
        b"",
    ),
    "the key of anybody without signature": ({"nkey": BOB.public}, None, b""),
    "the key of anybody signed by another key": ({"nkey": BOB.public}, ALICE.sign, b""),
    "nothing": ({}, None, b""),
    "a signature alone": ({"sig": "aa"}, None, b""),
    "permissions": ({"nkey": ALICE.public}, ALICE.sign, b"PUB bar 0\r\n\r\n"),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    assert PEER is not None
    servers = []
    for name, text in (("users", ""), ("anybody", f"no_auth_user: {BOB.public}\n")):
        for kind, command in (("peer", PEER), ("ours", our_command())):
            folder = tmp_path_factory.mktemp(f"{name}-{kind}")
            config = text + f"authorization {{ users: [ {USERS} ] }}"
            servers.append(ServerProcess(command, config, folder, with_http=False, may_fork=True))
            servers[-1].start()
    yield [server.port for server in servers]
    for server in servers:
        server.kill()


@pytest.mark.parametrize("name", list(ATTEMPTS))
def test_who_is_let_in(name: str, ports: list[int]) -> None:
    peer, ours, peer_of_anybody, ours_of_anybody = ports
    assert log_in(ours, *ATTEMPTS[name]) == log_in(peer, *ATTEMPTS[name])
    assert log_in(ours_of_anybody, *ATTEMPTS[name]) == log_in(peer_of_anybody, *ATTEMPTS[name])


@pytest.mark.parametrize(
    "text",
    [
        f"authorization {{ users: [ {{ nkey: {ALICE.public}, user: a }} ] }}",
        f"authorization {{ users: [ {{ nkey: {ALICE.public}, password: a }} ] }}",
        "authorization { users: [ { nkey: UA } ] }",
        f"authorization {{ users: [ {{ nkey: {Nkey('account', ACCOUNT).public} }} ] }}",
        f"authorization {{ users: [ {{ nkey: {ALICE.public} }}, {{ nkey: {ALICE.public} }} ] }}",
        f"accounts {{ X {{ users: [ {{ nkey: {ALICE.public} }} ] }}, "
        f"Y {{ users: [ {{ nkey: {ALICE.public} }} ] }} }}",
        f"no_auth_user: {NOBODY.public}\nauthorization {{ users: [ {{ nkey: {ALICE.public} }} ] }}",
    ],
)
def test_files_that_both_refuse(text: str, tmp_path: Path) -> None:
    assert PEER is not None
    for kind, command in (("peer", PEER), ("ours", our_command())):
        (tmp_path / kind).mkdir()
        server = ServerProcess(command, text, tmp_path / kind, with_http=False, may_fork=True)
        with pytest.raises(ServerFailed):
            server.start()
