"""Proxies that sign the nonce for their clients: which users need one, and what monitoring shows, on both servers."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.conformance.harness.process import ServerFailed, ServerProcess, our_command, peer_command
from tests.support.callout_service import Asked, CalloutService
from tests.support.jwt_clients import WAIT_S, World
from tests.support.nkeys import Nkey
from tests.support.raw import RawClient

from pyjs.testing.jwt import Key, user_token

PEER = peer_command()
pytestmark = pytest.mark.skipif(
    PEER is None and "peer" not in os.environ.get("PYJS_REQUIRE", ""), reason="nats-server is not here"
)
PROXY, OTHER, STRANGER = Key("server"), Key("user"), Key("server")
NKEY = Nkey("proxied")
ACCOUNT, USER, ISSUER = Key("account"), Key("user"), Key("account")
WORLD = World()
WORLD.add(ACCOUNT, "A")
TRUSTED = f"proxies {{ trusted: [ {{key: {PROXY.public}}}, {{public_key: {OTHER.public}}} ] }}\n"
USERS = f"""users: [
    {{user: any, password: p}}
    {{user: far, password: p, proxy_required: true}}
    {{nkey: {NKEY.public}, proxy_required: true}}
]"""
CONFIGS = {
    "users": f"{TRUSTED}authorization {{ {USERS} }}",
    "single user": f"{TRUSTED}authorization {{ user: u, password: p, proxy_required: true }}",
    "token": f"{TRUSTED}authorization {{ token: t, proxy_required: true }}",
    "no auth": TRUSTED,
    "no_auth_user": f"{TRUSTED}no_auth_user: far\nauthorization {{ {USERS} }}",
    "nobody is trusted": f"authorization {{ {USERS} }}",
    "JWT": TRUSTED + WORLD.config(),
}
Fields = Callable[[str], dict[str, Any]]  # fields of CONNECT, from the nonce


def signed(key: Key, **fields: Any) -> Fields:
    return lambda nonce: {**fields, "proxy_sig": key.sign_nonce(nonce)}


def plain(**fields: Any) -> Fields:
    return lambda nonce: fields


def by_nkey(nonce: str) -> dict[str, Any]:
    return {"nkey": NKEY.public, "sig": NKEY.sign(nonce)}


def by_token(**claims: Any) -> Fields:
    return lambda nonce: {"jwt": user_token(ACCOUNT, USER, "u", **claims), "sig": USER.sign_nonce(nonce)}


def through(key: Key, fields: Fields) -> Fields:
    return lambda nonce: {**fields(nonce), "proxy_sig": key.sign_nonce(nonce)}


ANY, FAR = {"user": "any", "pass": "p"}, {"user": "far", "pass": "p"}
ATTEMPTS: dict[str, tuple[str, Fields]] = {
    "directly": ("users", plain(**ANY)),
    "directly, though a proxy is needed": ("users", plain(**FAR)),
    "through the first proxy": ("users", signed(PROXY, **FAR)),
    "through the second proxy": ("users", signed(OTHER, **FAR)),
    "through a proxy that nobody needs": ("users", signed(PROXY, **ANY)),
    "through a stranger": ("users", signed(STRANGER, **FAR)),
    "through a stranger, though nobody needs a proxy": ("users", signed(STRANGER, **ANY)),
    "a signature that is no base 64": ("users", plain(**FAR, proxy_sig="!!")),
    "a signature of another nonce": ("users", plain(**FAR, proxy_sig=PROXY.sign_nonce("AAAA"))),
    "an empty signature": ("users", plain(**FAR, proxy_sig="")),
    "a wrong password through a proxy": ("users", signed(PROXY, user="far", **{"pass": "x"})),
    "a wrong password without a proxy": ("users", plain(user="far", **{"pass": "x"})),
    "an unknown user through a proxy": ("users", signed(PROXY, user="nobody", **{"pass": "x"})),
    "an nkey directly": ("users", by_nkey),
    "an nkey through a proxy": ("users", through(PROXY, by_nkey)),
    "the single user directly": ("single user", plain(user="u", **{"pass": "p"})),
    "the single user through a proxy": ("single user", signed(PROXY, user="u", **{"pass": "p"})),
    "a token directly": ("token", plain(auth_token="t")),
    "a token through a proxy": ("token", signed(PROXY, auth_token="t")),
    "a wrong token through a proxy": ("token", signed(PROXY, auth_token="x")),
    "nothing through a proxy": ("no auth", signed(PROXY)),
    "nothing through a stranger": ("no auth", signed(STRANGER)),
    "nothing, directly": ("no auth", plain()),
    "the default user directly": ("no_auth_user", plain()),
    "the default user through a proxy": ("no_auth_user", signed(PROXY)),
    "a signature where no proxy is trusted": ("nobody is trusted", signed(PROXY, **ANY)),
    "a needed proxy where none is trusted": ("nobody is trusted", signed(PROXY, **FAR)),
    "a JWT directly": ("JWT", by_token()),
    "a JWT through a proxy": ("JWT", through(PROXY, by_token())),
    "a JWT through a stranger": ("JWT", through(STRANGER, by_token())),
    "a JWT directly, though a proxy is needed": ("JWT", by_token(proxy_required=True)),
    "a JWT through a needed proxy": ("JWT", through(OTHER, by_token(proxy_required=True))),
}


class Servers:
    """Both servers, by configuration; each is started once."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._started: dict[str, list[ServerProcess]] = {}

    def get(self, name: str) -> list[ServerProcess]:
        if name not in self._started:
            self._started[name] = self.start(CONFIGS[name])
        return self._started[name]

    def start(self, config: str) -> list[ServerProcess]:
        """Start nats-server and ours."""
        assert PEER is not None
        pair = []
        for command in (PEER, our_command()):
            directory = self._directory / str(len(list(self._directory.iterdir())))
            directory.mkdir()
            server = ServerProcess(
                command, f"debug: true\n{config}", directory, with_http=True, may_fork=True
            )
            self._stack.callback(server.kill)
            server.start()
            pair.append(server)
        return pair


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("proxies"), stack)


class Client:
    """A client that may come through a proxy."""

    def __init__(self, server: ServerProcess, fields: Fields) -> None:
        self.server = server
        self.sock = socket.create_connection(("127.0.0.1", server.port), WAIT_S)
        self.lines = self.sock.makefile("rb")
        info = json.loads(self.lines.readline()[5:])
        self.cid = info["client_id"]
        self.has_nonce = "nonce" in info
        connect = {"verbose": False, "protocol": 0, **fields(info.get("nonce", ""))}
        self.sock.sendall(b"CONNECT " + json.dumps(connect).encode() + b"\r\nPING\r\n")
        self.said = self.lines.readline().decode().strip()

    def rest(self) -> str:
        """Return the lines up to the close; a close while our PING is unread resets the connection."""
        try:
            return self.lines.read().decode()
        except ConnectionResetError:
            return ""

    def shown(self) -> list[object]:
        """Return the entry of /connz for the client; nats-server lists a closed one a moment after its close."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + WAIT_S
        while not found and time.monotonic() < deadline:
            found = page(self.server, f"connz?state=any&auth=1&cid={self.cid}")["connections"]
        return [[each.get("reason"), each.get("proxy"), list(each)[:4]] for each in found]

    def logged(self) -> list[str]:
        """Return the log lines about the client, without parts that differ by chance."""
        if self.said != "PONG":
            assert self.server.logged(f"cid:{self.cid} - Client connection closed", WAIT_S)
        log = self.server.config_path.with_name("log").read_text()
        lines = [line for line in log.splitlines() if f"cid:{self.cid}" in line]
        texts = [re.sub(r"^\[\d+\] \S+ \S+ ", "", line) for line in lines]
        return [
            re.sub(r"127.0.0.1:\d+ - cid:\d+", "CLIENT", line)
            for line in texts
            if "oxy" in line or "ERR" in line
        ]

    def close(self) -> None:
        self.lines.close()
        self.sock.close()


def page(server: ServerProcess, name: str) -> Any:
    with urlopen(f"http://127.0.0.1:{server.http_port}/{name}", timeout=WAIT_S) as answer:
        return json.load(answer)


def seen(server: ServerProcess, fields: Fields) -> list[object]:
    """Return everything that clients and pages show of one login."""
    with closing(Client(server, fields)) as client:
        rest = client.rest() if client.said != "PONG" else ""
        return [client.has_nonce, client.said, rest, client.shown(), client.logged()]


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_login_through_a_proxy_ends_as_on_nats_server(servers: Servers, name: str) -> None:
    config, fields = ATTEMPTS[name]
    peer, ours = (seen(server, fields) for server in servers.get(config))
    assert ours == peer


def test_varz_has_the_trusted_proxies(servers: Servers) -> None:
    peer, ours = (page(server, "varz")["proxies"] for server in servers.get("users"))
    assert ours == peer == {"trusted": [{"key": PROXY.public}, {"key": OTHER.public}]}


def test_a_reload_closes_the_clients_of_a_proxy_that_is_no_longer_trusted(servers: Servers) -> None:
    def look(server: ServerProcess) -> list[object]:
        config = server.config_path.read_text()
        with (
            closing(Client(server, signed(PROXY, **FAR))) as gone,
            closing(Client(server, signed(OTHER, **FAR))) as stays,
        ):
            server.config_path.write_text(config.replace(f"{{key: {PROXY.public}}},", ""))
            server.signal("HUP")
            said = gone.said + gone.rest()
            stays.sock.sendall(b"PING\r\n")
            line = f'Reloaded: proxies trusted keys ["{PROXY.public}"] were removed'
            shown = [said, stays.lines.readline(), gone.shown(), stays.shown(), server.logged(line, WAIT_S)]
        with closing(Client(server, signed(PROXY, **FAR))) as late:
            return [*shown, late.said, late.rest(), page(server, "varz")["proxies"]]

    peer, ours = (look(server) for server in servers.start(CONFIGS["users"]))
    assert ours == peer


def test_a_service_may_let_in_only_who_comes_through_a_proxy(servers: Servers) -> None:
    config = f"""{TRUSTED}accounts {{ AUTH {{ users: [{{user: auth, password: a}}] }}, A {{}} }}
    authorization {{ timeout: 20, auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth] }} }}"""

    def decide(asked: Asked) -> bytes:
        user = asked.user_token(ISSUER, "u", audience="A", proxy_required=True)
        return asked.answer(ISSUER, user)

    def look(server: ServerProcess) -> list[object]:
        login = b'CONNECT {"user":"auth","pass":"a","verbose":false}\r\n'
        service = CalloutService(RawClient(server.port, connect=login), decide)
        try:
            return [seen(server, each)[:4] for each in (plain(user="x"), signed(PROXY, user="x"))]
        finally:
            service.close()

    peer, ours = (look(server) for server in servers.start(config))
    assert ours == peer


FAULTS = {
    "not a map": "proxies: [a]",
    "not a list": "proxies { trusted: a }",
    "not a key": "proxies { trusted: [ {key: a} ] }",
    "a key for encryption": f"proxies {{ trusted: [ {{key: {'X' * 56}}} ] }}",
    "no key": "proxies { trusted: [ {} ] }",
    "an unknown field": "proxies { trusts: [] }",
    "an unknown field of a proxy": "proxies { trusted: [ {name: a} ] }",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_block_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    assert PEER is not None
    for command in (PEER, our_command()):
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        server = ServerProcess(command, FAULTS[name], directory, with_http=False)
        with pytest.raises(ServerFailed):
            server.start()
