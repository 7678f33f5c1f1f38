"""Who may do what: each kind of login against each kind of access, allowed and denied.

A row is a login: the configuration of its user, with the placeholder for its permissions, and its CONNECT. A new kind
of login is one entry of LOGINS, a new access one of ACCESSES. Only this server is asked: the scenarios compare texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.callout_service import Asked, CalloutService
from tests.support.jwt_clients import World
from tests.support.nkeys import Nkey
from tests.support.raw import RawClient

from pyjs.testing.jwt import JETSTREAM, Key, user_token

KEY = Nkey("matrix")
ISSUER, ACCOUNT, SERVICES, USER = Key("account"), Key("account"), Key("account"), Key("user")
OWNER = "{user: owner, password: o}"
SERVE = "{user: serve, password: s}"
STORE = '\njetstream { store_dir: "<<store>>" }'
Fields = Callable[
    [str, "Denial | None"], dict[str, str]
]  # of CONNECT, for a nonce and what the user is denied


@dataclass(frozen=True)
class Denial:
    """Subjects that a user must not use."""

    verb: str  # publish or subscribe
    subject: str

    def block(self) -> str:
        """Return the permissions as text of a configuration."""
        return f', permissions: {{ {self.verb}: {{deny: "{self.subject}"}} }}'

    def claims(self) -> dict[str, Any]:
        """Return the permissions as claims of a token."""
        return {"pub" if self.verb == "publish" else "sub": {"deny": [self.subject]}}


def claims_of(denial: Denial | None) -> dict[str, Any]:
    return {} if denial is None else denial.claims()


@dataclass(frozen=True)
class Login:
    """One kind of login."""

    config: str  # of the server; <<permissions>> is a block, or nothing
    connect: Fields
    has_permissions: bool = True  # it can be denied something
    has_imports: bool = True  # its account imports a service
    owner: Fields = lambda nonce, denial: {"user": "owner", "pass": "o"}  # who makes the streams
    server: Fields = lambda nonce, denial: {"user": "serve", "pass": "s"}  # who answers imported requests


def in_account(user: str, more: str = "") -> str:
    """Return accounts: one with `user`, and the one whose service it imports."""
    return f"""accounts {{
        A {{ jetstream: enabled, users: [{OWNER}{user}], imports: [{{service: {{account: S, subject: help}}}}] }}
        S {{ users: [{SERVE}], exports: [{{service: help}}] }}
        AUTH {{ users: [{{user: auth, password: auth}}] }}
    }}
    {more}"""


def of_tokens() -> Login:
    """Return the login with a token of an operator's account."""
    world = World()
    world.add(ACCOUNT, "A", limits=JETSTREAM)

    def fields(claims: dict[str, Any], nonce: str) -> dict[str, str]:
        return {"jwt": user_token(ACCOUNT, USER, "u", **claims), "sig": USER.sign_nonce(nonce)}

    return Login(
        world.config(),
        lambda nonce, denial: fields(claims_of(denial), nonce),
        has_imports=False,  # those in tokens are not there yet: docs/compatibility.md
        owner=lambda nonce, denial: fields({}, nonce),
    )


CALLOUT = f"""authorization {{ auth_callout {{
    issuer: {ISSUER.public}, account: AUTH, auth_users: [auth, owner, serve]
}} }}"""
LOGINS = {
    "no auth": Login("", lambda nonce, denial: {}, has_permissions=False, has_imports=False),
    "no_auth_user": Login(
        in_account(", {user: u, password: p <<permissions>>}", "no_auth_user: u"),
        lambda nonce, denial: {},
    ),
    "user": Login(
        f"authorization {{ users: [{OWNER}, {{user: u, password: p <<permissions>>}}] }}",
        lambda nonce, denial: {"user": "u", "pass": "p"},
        has_imports=False,
    ),
    "token": Login(
        "authorization { token: t }",
        lambda nonce, denial: {"auth_token": "t"},
        has_permissions=False,
        has_imports=False,
    ),
    "nkey": Login(
        in_account(f", {{nkey: {KEY.public} <<permissions>>}}"),
        lambda nonce, denial: {"nkey": KEY.public, "sig": KEY.sign(nonce)},
    ),
    "account": Login(
        in_account(", {user: u, password: p <<permissions>>}"),
        lambda nonce, denial: {"user": "u", "pass": "p"},
    ),
    "JWT": of_tokens(),
    "callout": Login(in_account("", CALLOUT), lambda nonce, denial: {"user": "u", "pass": "p"}),
}
# By access: what denies it, and the attempt, which returns whether it had an effect.
Attempt = Callable[["SigningClient"], Any]


def publishes(client: RawClient) -> bool:
    client.send(b"SUB echo.> 50\r\nPUB echo.a 0\r\n\r\nPING\r\n")
    return b"MSG echo.a" in client.read_until(b"PONG\r\n")


def stored(client: RawClient) -> Any:
    return b'"seq"' in client.request(b"stored.b", b"2")


def acknowledges(client: RawClient) -> Any:
    client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.raw.pull 0\r\n\r\n")
    ack = next(client.frames())[1]
    client.send(b"PUB %b 4\r\n+ACK\r\n" % ack)
    return client.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 1


def imported(client: SigningClient) -> bool:
    """Return whether a request reaches the service of another account, and its answer comes back."""
    assert client.service is not None
    client.service.send(b"SUB help 5\r\n")
    client.service.fence()
    client.send(b"PUB help _INBOX.raw.help 0\r\n\r\nPING\r\n")
    if b"-ERR" in client.read_until(b"PONG\r\n"):
        return False
    _, reply, _, _ = next(client.service.frames())
    client.service.send(b"PUB %b 2\r\nhi\r\n" % reply)
    return next(client.frames())[3] == b"hi"


def answered(client: RawClient, subject: bytes) -> bool:
    """Return whether a request to `subject` is answered with a message; a refusal is an -ERR."""
    client.send(b"PUB %b _INBOX.raw.answer 0\r\n\r\n" % subject)
    while not (line := client.read_until(b"\r\n")).startswith(b"-ERR"):
        if b"MSG _INBOX.raw.answer " in line:
            return True
    return False


ACCESSES: dict[str, tuple[Denial, Attempt]] = {
    "publish": (Denial("publish", "echo.>"), publishes),
    "subscribe": (Denial("subscribe", "echo.>"), publishes),
    "JetStream publish": (Denial("publish", "stored.>"), stored),
    "JetStream API": (
        Denial("publish", "$JS.API.STREAM.>"),
        lambda client: "config" in client.try_api("STREAM.INFO.S"),
    ),
    "ack": (Denial("publish", "$JS.ACK.>"), acknowledges),
    "direct get": (
        Denial("publish", "$JS.API.DIRECT.>"),
        lambda client: answered(client, b"$JS.API.DIRECT.GET.S.stored.a"),
    ),
    "KV": (
        Denial("publish", "$JS.API.DIRECT.GET.KV_K.>"),
        lambda client: answered(client, b"$JS.API.DIRECT.GET.KV_K.$KV.K.a"),
    ),
    "import": (Denial("publish", "help"), imported),
    "monitoring": (Denial("publish", "$SYS.REQ.>"), lambda client: answered(client, b"$SYS.REQ.USER.INFO")),
    "bulk read": (
        Denial("publish", "$JS.API.PYJS.>"),
        lambda client: answered(client, b"$JS.API.PYJS.BULK.LIST.S"),
    ),
}


class SigningClient(RawClient):
    """A client whose CONNECT may sign the nonce of its INFO."""

    def __init__(
        self, port: int, fields: Fields, denial: Denial | None = None, inbox: bytes = b"_INBOX.raw"
    ) -> None:
        self.service: RawClient | None = None  # in another account
        self._fields: Fields | None = fields
        self._denial = denial
        super().__init__(port, timeout_s=5, connect=b"", inbox=inbox)

    def send(self, data: bytes) -> None:
        if data == b"PING\r\n" and self._fields is not None:
            connect, self._fields = self._fields, None
            info = json.loads(self.read_until(b"\r\n").removeprefix(b"INFO "))
            said = {"verbose": False, "headers": True, "no_responders": False, "protocol": 0}
            fields = json.dumps(said | connect(info.get("nonce", ""), self._denial)).encode()
            data = b"CONNECT %b\r\nPING\r\n" % fields
        super().send(data)

    def read_until(self, mark: bytes) -> bytes:
        """Return what comes before `mark`; a refusal fails at once, not after the timeout."""
        text = super().read_until(mark)
        assert not text.startswith(b"-ERR"), text
        return text


def prepare(client: RawClient) -> None:
    """Make what the accesses need, as a user without limits."""
    client.api("STREAM.CREATE.S", name="S", subjects=["stored.>"], allow_direct=True)
    client.api(
        "STREAM.CREATE.KV_K", name="KV_K", subjects=["$KV.K.>"], allow_direct=True, max_msgs_per_subject=1
    )
    client.request(b"stored.a", b"1")
    client.request(b"$KV.K.a", b"1")
    client.api("CONSUMER.CREATE.S.c", stream_name="S", config={"durable_name": "c", "ack_policy": "explicit"})


@contextmanager
def deciding(server: ServerProcess, login: Login, denial: Denial | None) -> Iterator[None]:
    """Answer the questions of a callout, if the login has one: the user belongs to account A."""
    if "auth_callout" not in login.config:
        yield
        return

    def decide(asked: Asked) -> bytes:
        said = asked.nats["connect_opts"]
        if (said.get("user"), said.get("pass")) != ("u", "p"):
            return asked.answer(ISSUER, error="unknown")
        return asked.answer(ISSUER, asked.user_token(ISSUER, "u", audience="A", **claims_of(denial)))

    service = CalloutService(
        SigningClient(server.port, lambda nonce, denial: {"user": "auth", "pass": "auth"}), decide
    )
    try:
        yield
    finally:
        service.close()
        assert not service.faults


def attempt(directory: Path, login: Login, access: str, denied: bool) -> bool:
    denial, act = ACCESSES[access]
    wanted = denial if denied else None
    config = login.config.replace("<<permissions>>", denial.block() if denied else "") + STORE
    server = ServerProcess(our_command(), config, directory, with_http=True, may_fork=True)
    server.start()
    try:
        prepare(SigningClient(server.port, login.owner if login.has_permissions else login.connect))
        with deciding(server, login, wanted):
            client = SigningClient(server.port, login.connect, wanted)
            client.fence()
            if access == "import":
                client.service = SigningClient(server.port, login.server, inbox=b"_INBOX.serve")
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


CELLS = [
    (name, access)
    for name, login in LOGINS.items()
    for access in ACCESSES
    if login.has_imports or access != "import"
]


@pytest.mark.parametrize(("login", "access"), CELLS)
def test_nothing_is_refused_that_should_not_be(tmp_path: Path, login: str, access: str) -> None:
    assert attempt(tmp_path, LOGINS[login], access, denied=False)


@pytest.mark.parametrize(("login", "access"), [cell for cell in CELLS if LOGINS[cell[0]].has_permissions])
def test_nothing_is_reached_that_should_not_be(tmp_path: Path, login: str, access: str) -> None:
    assert not attempt(tmp_path, LOGINS[login], access, denied=True)


@pytest.mark.parametrize("login", [name for name in LOGINS if not name.startswith("no")])
def test_without_its_credentials_nobody_enters(tmp_path: Path, login: str) -> None:
    config = LOGINS[login].config.replace("<<permissions>>", "") + STORE
    server = ServerProcess(our_command(), config, tmp_path, with_http=False, may_fork=True)
    server.start()
    try:
        with deciding(server, LOGINS[login], None), pytest.raises((ConnectionError, TimeoutError)):
            SigningClient(server.port, lambda nonce, denial: {}).fence()
    finally:
        server.kill()
