"""Access rights: each kind of login with each kind of access, permitted and denied, on both servers.

A row is a login: the configuration of its users and their CONNECT. A column is an access. Each login has one user
that may do everything and, for each access, one user named after it who is denied this access. A new kind of login is
one entry of LOGINS, a new access one of ACCESSES.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.callout_service import Asked, CalloutService
from tests.support.jwt_clients import World
from tests.support.nkeys import Nkey
from tests.support.raw import RawClient

from pyjs.testing.jwt import JETSTREAM, Key, user_token

PEER = peer_command()
KINDS = ["ours", "peer"]
ISSUER, ACCOUNT, SERVICES, USER = Key("account"), Key("account"), Key("account"), Key("user")
OWNER = "{user: owner, password: o}"
SERVE = "{user: serve, password: s}"
STORE = '\njetstream { store_dir: "<<store>>" }'
OFFER = f"S {{ users: [{SERVE}], exports: [{{service: help}}] }}"
REACHED, REFUSED, UNANSWERED = "reached", "refused", "unanswered"
Fields = Callable[
    [str, str], dict[str, str]
]  # fields of CONNECT, from the nonce and the access that the user is denied


class Refused(Exception):
    """The server sent -ERR."""


class SigningClient(RawClient):
    """A client whose CONNECT may sign the nonce of its INFO."""

    def __init__(self, port: int, fields: Fields, denied: str = "", inbox: bytes = b"_INBOX.raw") -> None:
        self.service: RawClient | None = None  # a client of another account, which answers requests
        self._fields: Fields | None = fields
        self._denied = denied
        super().__init__(port, connect=b"", inbox=inbox)

    def send(self, data: bytes) -> None:
        if data == b"PING\r\n" and self._fields is not None:
            connect, self._fields = self._fields, None
            info = json.loads(self.read_until(b"\r\n").removeprefix(b"INFO "))
            said = {"verbose": False, "headers": True, "no_responders": True, "protocol": 0}
            fields = json.dumps(said | connect(info.get("nonce", ""), self._denied)).encode()
            data = b"CONNECT %b\r\nPING\r\n" % fields
        super().send(data)

    def read_until(self, mark: bytes) -> bytes:
        """Return the bytes before `mark`; a refusal fails at once, not after the timeout."""
        text = super().read_until(mark)
        if text.startswith(b"-ERR"):
            raise Refused(text)
        return text


# Accesses: each attempt returns whether it had an effect


def publishes(client: SigningClient) -> bool:
    client.send(b"SUB echo.> 50\r\nPUB echo.a 0\r\n\r\nPING\r\n")
    return b"MSG echo.a" in client.read_until(b"PONG\r\n")


def stored(client: SigningClient) -> bool:
    return b'"seq"' in client.request(b"stored.b", b"2")


def acknowledges(client: SigningClient) -> bool:
    client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.raw.pull 0\r\n\r\n")
    ack = next(client.frames())[1]
    client.request(ack, b"+ACK")  # the answer means that the server has processed the ack
    floor: int = client.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"]
    return floor == 1


def imported(client: SigningClient) -> bool:
    """Return whether a request reaches the service of another account and its answer arrives."""
    client.send(b"PUB help _INBOX.raw.help 0\r\n\r\nPING\r\n")
    if b" 503" in client.read_until(b"PONG\r\n"):
        return False
    assert client.service is not None
    _, reply, _, _ = next(client.service.frames())
    client.service.send(b"PUB %b 2\r\nhi\r\n" % reply)
    return next(client.frames())[3] == b"hi"


def answers(subject: bytes) -> Callable[[SigningClient], bool]:
    """Return the attempt that requests `subject`; a refusal is an -ERR."""

    def request(client: SigningClient) -> bool:
        client.send(b"PUB %b _INBOX.raw.answer 0\r\n\r\n" % subject)
        subject_of_answer, _, headers, _ = next(client.frames())
        return subject_of_answer == b"_INBOX.raw.answer" and b" 503" not in headers

    return request


@dataclass(frozen=True)
class Access:
    """One kind of access, and the permission that denies it."""

    verb: str  # publish or subscribe
    subject: str  # the subject that the user must not use
    attempt: Callable[[SigningClient], bool]
    needs_streams: bool = True

    def block(self) -> str:
        """Return the permissions as text of a configuration."""
        return f', permissions: {{ {self.verb}: {{deny: "{self.subject}"}} }}'

    def claims(self) -> dict[str, Any]:
        """Return the permissions as claims of a token."""
        return {"pub" if self.verb == "publish" else "sub": {"deny": [self.subject]}}


ACCESSES = {
    "publish": Access("publish", "echo.>", publishes, needs_streams=False),
    "subscribe": Access("subscribe", "echo.>", publishes, needs_streams=False),
    "JetStream publish": Access("publish", "stored.>", stored),
    "JetStream API": Access(
        "publish", "$JS.API.STREAM.>", lambda client: "config" in client.try_api("STREAM.INFO.S")
    ),
    "ack": Access("publish", "$JS.ACK.>", acknowledges),
    "direct get": Access("publish", "$JS.API.DIRECT.>", answers(b"$JS.API.DIRECT.GET.S.stored.a")),
    "KV": Access("publish", "$JS.API.DIRECT.GET.KV_K.>", answers(b"$JS.API.DIRECT.GET.KV_K.$KV.K.a")),
    "import": Access("publish", "help", imported, needs_streams=False),
    "monitoring": Access("publish", "$SYS.REQ.>", answers(b"$SYS.REQ.USER.INFO"), needs_streams=False),
    "bulk read": Access("publish", "$JS.API.PYJS.>", answers(b"$JS.API.PYJS.BULK.LIST.S")),
}
NAMES = ["", *ACCESSES]  # names of users: each is the access that the user is denied


def block_of(denied: str) -> str:
    return ACCESSES[denied].block() if denied else ""


def claims_of(denied: str) -> dict[str, Any]:
    return ACCESSES[denied].claims() if denied else {}


# Logins


@dataclass(frozen=True)
class Login:
    """One kind of login."""

    config: str  # configuration of the server; <<permissions>> stands for those of the only user
    connect: Fields
    has_permissions: bool = True  # the user can have permissions
    has_imports: bool = True  # the user's account imports a service
    has_streams: bool = True  # the user's account has JetStream
    owner: Fields = lambda nonce, denied: {"user": "owner", "pass": "o"}  # the user that creates the streams
    # the user that offers the service
    server: Fields | None = lambda nonce, denied: {"user": "serve", "pass": "s"}


def in_account(users: str, more: str = "") -> str:
    """Return accounts: one with `users`, and one with the service that it imports."""
    return f"""accounts {{
        A {{ jetstream: enabled, users: [{OWNER}{users}], imports: [{{service: {{account: S, subject: help}}}}] }}
        {OFFER}
        AUTH {{ users: [{{user: auth, password: auth}}] }}
    }}
    {more}"""


def of_tokens() -> Login:
    """Return the login with a token of an operator's account."""
    world = World()
    offered = {"name": "help", "subject": "help", "type": "service"}
    world.add(SERVICES, "S", exports=[offered])
    world.add(ACCOUNT, "A", limits=JETSTREAM, imports=[{**offered, "account": SERVICES.public}])

    def fields(account: Key, nonce: str, **claims: Any) -> dict[str, str]:
        return {"jwt": user_token(account, USER, "u", **claims), "sig": USER.sign_nonce(nonce)}

    return Login(
        world.config(),
        lambda nonce, denied: fields(ACCOUNT, nonce, **claims_of(denied)),
        owner=lambda nonce, denied: fields(ACCOUNT, nonce),
        server=lambda nonce, denied: fields(SERVICES, nonce),
    )


def password(nonce: str, denied: str) -> dict[str, str]:
    return {"user": f"u {denied}", "pass": "p"}


def key_of(denied: str) -> Nkey:
    return Nkey(f"matrix {denied}")


USERS = ", ".join(f'{{user: "u {name}", password: p {block_of(name)}}}' for name in NAMES)
NKEYS = "".join(f", {{nkey: {key_of(name).public} {block_of(name)}}}" for name in NAMES)
CALLOUT = f"""authorization {{ timeout: 20, auth_callout {{
    issuer: {ISSUER.public}, account: AUTH, auth_users: [auth, owner, serve]
}} }}"""
LOGINS = {
    "no auth": Login(
        "", lambda nonce, denied: {}, has_permissions=False, has_imports=False, server=None
    ),  # a second account could not have a client
    "no_auth_user": Login(
        in_account(", {user: u, password: p <<permissions>>}", "no_auth_user: u"), lambda nonce, denied: {}
    ),
    "user": Login(f"authorization {{ users: [{OWNER}, {USERS}] }}", password, has_imports=False, server=None),
    "user beside accounts": Login(
        f"authorization {{ users: [{OWNER}, {USERS}] }}\naccounts {{ {OFFER} }}",
        password,
        has_imports=False,
        has_streams=False,
    ),  # then JetStream is not enabled for the global account, on either server
    "token": Login(
        "authorization { token: t }",
        lambda nonce, denied: {"auth_token": "t"},
        has_permissions=False,
        has_imports=False,
        server=None,
    ),
    "nkey": Login(
        in_account(NKEYS),
        lambda nonce, denied: {"nkey": key_of(denied).public, "sig": key_of(denied).sign(nonce)},
    ),
    "account": Login(in_account(f", {USERS}"), password),
    "JWT": of_tokens(),
    "callout": Login(in_account("", CALLOUT), password),
}


def decide(asked: Asked) -> bytes:
    """Answer a request of the callout: a user with the password belongs to account A."""
    said = asked.nats["connect_opts"]
    name = said.get("user", "").removeprefix("u ")
    if said.get("pass") != "p" or name not in NAMES:
        return asked.answer(ISSUER, error="unknown")
    return asked.answer(ISSUER, asked.user_token(ISSUER, "u", audience="A", **claims_of(name)))


@contextmanager
def deciding(server: ServerProcess, login: Login) -> Iterator[None]:
    """Answer the requests of the callout, if the login uses one."""
    if "auth_callout" not in login.config:
        yield
        return
    client = SigningClient(server.port, lambda nonce, denied: {"user": "auth", "pass": "auth"})
    service = CalloutService(client, decide)
    try:
        yield
    finally:
        service.close()
        assert not service.faults


# The servers, started when a cell first needs them


class Servers:
    """Servers by kind, login and permissions."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._started: dict[tuple[str, str, str], ServerProcess] = {}

    def get(self, kind: str, name: str, denied: str) -> ServerProcess:
        """Return the running server for a cell; logins with many users need one server only."""
        login = LOGINS[name]
        only = denied if "<<permissions>>" in login.config else ""
        if (found := self._started.get((kind, name, only))) is None:
            config = login.config.replace("<<permissions>>", block_of(only)) + STORE
            found = self._started[kind, name, only] = self._start(kind, config)
            self._stack.enter_context(deciding(found, login))
        return found

    def _start(self, kind: str, config: str) -> ServerProcess:
        directory = self._directory / str(len(self._started))
        directory.mkdir()
        command = PEER if kind == "peer" else our_command()
        assert command is not None
        server = ServerProcess(command, config, directory, with_http=True, may_fork=True)
        self._stack.callback(server.kill)
        server.start()
        return server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("matrix"), stack)


def prepare(port: int, login: Login) -> None:
    """Create the streams and consumers that the accesses need, as a user without restrictions."""
    with closing(SigningClient(port, login.owner if login.has_permissions else login.connect)) as client:
        for name in ("S", "KV_K"):
            client.try_api(f"STREAM.DELETE.{name}")
        client.api("STREAM.CREATE.S", name="S", subjects=["stored.>"], allow_direct=True)
        client.api(
            "STREAM.CREATE.KV_K", name="KV_K", subjects=["$KV.K.>"], allow_direct=True, max_msgs_per_subject=1
        )
        client.request(b"stored.a", b"1")
        client.request(b"$KV.K.a", b"1")
        config = {"durable_name": "c", "ack_policy": "explicit"}
        client.api("CONSUMER.CREATE.S.c", stream_name="S", config=config)


def outcome(servers: Servers, kind: str, name: str, access: str, denied: str) -> str:
    """Return the result of an attempt: reached, refused with -ERR, or without an effect."""
    login, port = LOGINS[name], servers.get(kind, name, denied).port
    if ACCESSES[access].needs_streams:
        prepare(port, login)
    with ExitStack() as stack:
        client = stack.enter_context(closing(SigningClient(port, login.connect, denied)))
        if access == "import" and login.server is not None:
            service = SigningClient(port, login.server, inbox=b"_INBOX.serve")
            client.service = stack.enter_context(closing(service))
            service.send(b"SUB help 5\r\n")
            service.fence()
        try:
            return REACHED if ACCESSES[access].attempt(client) else UNANSWERED
        except Refused:
            return REFUSED


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield kinds, logins and accesses, without accesses to streams for logins that have no streams."""
    for kind, (name, login) in product(KINDS, LOGINS.items()):
        for access, accessed in ACCESSES.items():
            if login.has_streams or not accessed.needs_streams:
                yield kind, name, access


def cell(kind: str, name: str, *more: str) -> Any:
    """Return one case."""
    missing = kind == "peer" and PEER is None and "peer" not in os.environ.get("PYJS_REQUIRE", "")
    skip = pytest.mark.skipif(missing, reason="nats-server is not here")
    return pytest.param(kind, name, *more, marks=[skip])


@pytest.mark.parametrize(
    ("kind", "login", "access"),
    # nats-server has no bulk read
    [cell(*each) for each in cells() if (each[0], each[2]) != ("peer", "bulk read")],
)
def test_nothing_is_refused_that_should_not_be(servers: Servers, kind: str, login: str, access: str) -> None:
    found = outcome(servers, kind, login, access, denied="")
    has_it = access != "import" or LOGINS[login].has_imports
    assert found == (REACHED if has_it else UNANSWERED)


@pytest.mark.parametrize(
    ("kind", "login", "access"),
    [cell(*each) for each in cells() if LOGINS[each[1]].has_permissions],
)
def test_nothing_is_reached_that_should_not_be(servers: Servers, kind: str, login: str, access: str) -> None:
    assert outcome(servers, kind, login, access, denied=access) == REFUSED


@pytest.mark.parametrize(
    ("kind", "login"), [cell(kind, name) for kind in KINDS for name in LOGINS if not name.startswith("no")]
)
def test_without_its_credentials_nobody_enters(servers: Servers, kind: str, login: str) -> None:
    port = servers.get(kind, login, "").port
    with pytest.raises((Refused, ConnectionError)):
        SigningClient(port, lambda nonce, denied: {}).fence()


@pytest.mark.parametrize(("kind", "login"), [cell(kind, name) for kind in KINDS for name in LOGINS])
def test_the_monitoring_port_has_no_users(servers: Servers, kind: str, login: str) -> None:
    server = servers.get(kind, login, "")
    page = f"http://127.0.0.1:{server.http_port}/connz"
    with closing(SigningClient(server.port, LOGINS[login].connect)), urlopen(page, timeout=20) as shown:
        assert json.load(shown)["num_connections"] >= 1
