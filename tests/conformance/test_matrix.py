"""Who may do what: each kind of login against each kind of access, allowed and denied.

A row is a login: the configuration of its user, with the placeholder for its permissions, and its CONNECT. A new kind
of login is one entry of LOGINS, a new access one of ACCESSES. Only this server is asked: the scenarios compare texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.nkeys import Nkey
from tests.support.raw import RawClient

KEY = Nkey("matrix")
OWNER = "{user: owner, password: o}"


@dataclass(frozen=True)
class Login:
    """One kind of login."""

    config: str  # of the server; <<permissions>> is a block, or nothing
    connect: Callable[[str], dict[str, str]]  # the fields of CONNECT, given the nonce
    has_permissions: bool = True  # it can be denied something


LOGINS = {
    "no auth": Login("", lambda nonce: {}, has_permissions=False),
    "no_auth_user": Login(
        f"authorization {{ users: [{OWNER}, {{user: u, password: p <<permissions>>}}] }}\nno_auth_user: u",
        lambda nonce: {},
    ),
    "user": Login(
        f"authorization {{ users: [{OWNER}, {{user: u, password: p <<permissions>>}}] }}",
        lambda nonce: {"user": "u", "pass": "p"},
    ),
    "token": Login("authorization { token: t }", lambda nonce: {"auth_token": "t"}, has_permissions=False),
    "nkey": Login(
        f"authorization {{ users: [{OWNER}, {{nkey: {KEY.public} <<permissions>>}}] }}",
        lambda nonce: {"nkey": KEY.public, "sig": KEY.sign(nonce)},
    ),
    "account": Login(
        f"accounts {{ A {{ jetstream: enabled, users: [{OWNER}, {{user: u, password: p <<permissions>>}}] }} }}",
        lambda nonce: {"user": "u", "pass": "p"},
    ),
}
# By access: what denies it, and the attempt, which returns whether it had an effect.
Attempt = Callable[[RawClient], Any]


def publishes(client: RawClient) -> bool:
    client.send(b"SUB echo.> 50\r\nPUB echo.a 0\r\n\r\nPING\r\n")
    return b"MSG echo.a" in client.read_until(b"PONG\r\n")


def acknowledges(client: RawClient) -> Any:
    client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.raw.pull 0\r\n\r\n")
    ack = next(client.frames())[1]
    client.send(b"PUB %b 4\r\n+ACK\r\n" % ack)
    return client.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 1


def answered(client: RawClient, subject: bytes, payload: bytes = b"", holds: bytes = b"") -> bool:
    """Return whether the answer to a request begins with a line that `holds`; a refusal is an -ERR, at once."""
    client.send(b"PUB %b _INBOX.raw.answer %d\r\n%b\r\n" % (subject, len(payload), payload))
    while not (line := client.read_until(b"\r\n")).startswith(b"-ERR"):
        if b"MSG _INBOX.raw.answer " in line:
            return holds in client.read_until(b"\r\n")
    return False


ACCESSES: dict[str, tuple[str, Attempt]] = {
    "publish": ('publish: {deny: "echo.>"}', publishes),
    "subscribe": ('subscribe: {deny: "echo.>"}', publishes),
    "JetStream publish": (
        'publish: {deny: "stored.>"}',
        lambda client: answered(client, b"stored.b", b"2", b'"seq"'),
    ),
    "JetStream API": (
        'publish: {deny: "$JS.API.STREAM.>"}',
        lambda client: answered(client, b"$JS.API.STREAM.INFO.S", holds=b'"config"'),
    ),
    "ack": ('publish: {deny: "$JS.ACK.>"}', acknowledges),
    "direct get": (
        'publish: {deny: "$JS.API.DIRECT.>"}',
        lambda client: answered(client, b"$JS.API.DIRECT.GET.S.stored.a"),
    ),
    "KV": (
        'publish: {deny: "$JS.API.DIRECT.GET.KV_K.>"}',
        lambda client: answered(client, b"$JS.API.DIRECT.GET.KV_K.$KV.K.a"),
    ),
    "bulk read": (
        'publish: {deny: "$JS.API.PYJS.>"}',
        lambda client: answered(client, b"$JS.API.PYJS.BULK.LIST.S"),
    ),
}


def enter(server: ServerProcess, login: Login) -> RawClient:
    return SigningClient(server.port, login)


class SigningClient(RawClient):
    """A client whose CONNECT may sign the nonce of its INFO."""

    def __init__(self, port: int, login: Login) -> None:
        self._login = login
        super().__init__(port, timeout_s=5, connect=b"")

    def send(self, data: bytes) -> None:
        if data == b"PING\r\n" and self._login is not None:
            login, self._login = self._login, None  # type: ignore[assignment]
            info = json.loads(self.read_until(b"\r\n").removeprefix(b"INFO "))
            said = {"verbose": False, "headers": True, "no_responders": False, "protocol": 0}
            fields = json.dumps(said | login.connect(info.get("nonce", ""))).encode()
            data = b"CONNECT %b\r\nPING\r\n" % fields
        super().send(data)


def prepare(client: RawClient) -> None:
    """Make what the accesses need, as a user without limits."""
    client.api("STREAM.CREATE.S", name="S", subjects=["stored.>"], allow_direct=True)
    client.api(
        "STREAM.CREATE.KV_K", name="KV_K", subjects=["$KV.K.>"], allow_direct=True, max_msgs_per_subject=1
    )
    client.request(b"stored.a", b"1")
    client.request(b"$KV.K.a", b"1")
    client.api("CONSUMER.CREATE.S.c", stream_name="S", config={"durable_name": "c", "ack_policy": "explicit"})


def attempt(directory: Path, login: Login, access: str, denied: bool) -> bool:
    denial, act = ACCESSES[access]
    block = f", permissions: {{ {denial} }}" if denied else ""
    config = login.config.replace("<<permissions>>", block) + '\njetstream { store_dir: "<<store>>" }'
    server = ServerProcess(our_command(), config, directory, with_http=True, may_fork=True)
    server.start()
    try:
        owner = Login("", lambda nonce: {"user": "owner", "pass": "o"}) if login.has_permissions else login
        prepare(enter(server, owner))
        client = enter(server, login)
        client.fence()
        try:
            reached = bool(act(client))
        except (TimeoutError, AssertionError):
            reached = False
        # The monitoring port has no users, see SECURITY.md.
        with urlopen(f"http://127.0.0.1:{server.http_port}/connz", timeout=5) as page:
            assert json.load(page)["num_connections"] >= 1
        return reached
    finally:
        server.kill()


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("login", LOGINS)
def test_nothing_is_refused_that_should_not_be(tmp_path: Path, login: str, access: str) -> None:
    assert attempt(tmp_path, LOGINS[login], access, denied=False)


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("login", [name for name, login in LOGINS.items() if login.has_permissions])
def test_nothing_is_reached_that_should_not_be(tmp_path: Path, login: str, access: str) -> None:
    assert not attempt(tmp_path, LOGINS[login], access, denied=True)


@pytest.mark.parametrize("login", [name for name in LOGINS if not name.startswith("no")])
def test_without_its_credentials_nobody_enters(tmp_path: Path, login: str) -> None:
    config = LOGINS[login].config.replace("<<permissions>>", "")
    server = ServerProcess(our_command(), config, tmp_path, with_http=False, may_fork=True)
    server.start()
    try:
        with pytest.raises((ConnectionError, TimeoutError)):
            enter(server, Login("", lambda nonce: {})).fence()
    finally:
        server.kill()
