"""Logins of WebSocket clients: cookies, and options of the block that override those of other blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import Both, WebSocketServer, both_servers
from tests.support.jwt_clients import World
from tests.support.websocket import WebSocketClient

from pyjs.testing.jwt import Key, user_token

pytestmark = needs_peer
WS = 'websocket {{ listen: "127.0.0.1:<<ws>>", no_tls: true {} }}'
USERS = "authorization { users: [ {user: a, password: pa}, {user: b, password: pb} ] }\n"
COOKIES = ', user_cookie: "u", pass_cookie: "p", token_cookie: "t"'


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("logins")) as servers:
        yield servers


def login(server: WebSocketServer, cookie: str | None = None, **options: str) -> list[str]:
    """Return the answers to CONNECT and PING, with the user that /connz shows."""
    with closing(WebSocketClient(server.ws_port, Cookie=cookie)) as client:
        first = json.loads(client.read_until(b"\r\n").removeprefix(b"INFO "))
        given = {"verbose": False, "pedantic": False, "protocol": 1, **options}
        client.send(b"CONNECT %b\r\nPING\r\n" % json.dumps(given).encode())
        found = [f"required: {first.get('auth_required')}"]
        try:
            client.read_until(b"PONG\r\n")
        except ConnectionError as error:
            return [*found, client.messages.decode(), str(error)]
        connections = server.page("/connz?auth=true")["connections"]
        user = str(connections[0].get("authorized_user"))
        return [*found, user if user in ("a", "b", "w") else ""]


LOGINS: dict[str, tuple[str, str, str | None, dict[str, str]]] = {
    "nothing is required": ("", "", None, {}),
    "a user that is not asked for": ("", "", None, {"user": "x", "pass": "y"}),
    "no credentials": (USERS, "", None, {}),
    "a user": (USERS, "", None, {"user": "a", "pass": "pa"}),
    "a wrong password": (USERS, "", None, {"user": "a", "pass": "pb"}),
    "a user in cookies": (USERS, COOKIES, "u=a; p=pa", {}),
    "a user in cookies, with quotes": (USERS, COOKIES, 'u="a"; p="pa"', {}),
    "a wrong password in a cookie": (USERS, COOKIES, "u=a; p=pb", {}),
    "cookies that no key names": (USERS, "", "u=a; p=pa", {}),
    "CONNECT before cookies": (USERS, COOKIES, "u=a; p=pa", {"user": "b", "pass": "pb"}),
    "the password alone in a cookie": (USERS, COOKIES, "p=pa", {"user": "a"}),
    "a cookie twice": (USERS, COOKIES, "u=b; u=a; p=pa", {}),
    "a token": ("authorization { token: secret }\n", "", None, {"auth_token": "secret"}),
    "a token in a cookie": ("authorization { token: secret }\n", COOKIES, "t=secret", {}),
    "a wrong token in a cookie": ("authorization { token: secret }\n", COOKIES, "t=other", {}),
    "no_auth_user of all": (USERS + "no_auth_user: a\n", "", None, {}),
    "no_auth_user of the block": (USERS, ", no_auth_user: b", None, {}),
    "no_auth_user of both": (USERS + "no_auth_user: a\n", ", no_auth_user: b", None, {}),
    "a user of the block": (
        "",
        ", authorization { user: w, password: pw }",
        None,
        {"user": "w", "pass": "pw"},
    ),
    "a user of the block, without credentials": ("", ", authorization { user: w, password: pw }", None, {}),
    "a token of the block": ("", ", authorization { token: wt }", None, {"auth_token": "wt"}),
    "a wrong token of the block": ("", ", authorization { token: wt }", None, {"auth_token": "no"}),
    "the user of all, where the block has one": (
        "authorization { user: a, password: pa }\n",
        ", authorization { user: w, password: pw }",
        None,
        {"user": "a", "pass": "pa"},
    ),
    "the user of the block, where all have one": (
        "authorization { user: a, password: pa }\n",
        ", authorization { user: w, password: pw }",
        None,
        {"user": "w", "pass": "pw"},
    ),
    "the user of the block in cookies": (
        "",
        COOKIES + ", authorization { user: w, password: pw }",
        "u=w;p=pw",
        {},
    ),
}


@pytest.mark.parametrize(("common", "block", "cookie", "options"), LOGINS.values(), ids=LOGINS)
def test_a_login_is_judged_as_elsewhere(
    both: Both, common: str, block: str, cookie: str | None, options: dict[str, str]
) -> None:
    both.see(lambda server: login(server, cookie, **options), common + WS.format(block))


@pytest.mark.parametrize("cookie", ["bearer", "signed", "damaged", "none"])
def test_a_token_in_a_cookie_logs_in_where_operators_are_configured(both: Both, cookie: str) -> None:
    world, account, user = World(), Key("account"), Key("user")
    world.add(account, "A")
    bearer = user_token(account, user, "u", bearer_token=True)
    tokens = {"bearer": bearer, "signed": user_token(account, user, "u"), "damaged": bearer[:-2]}
    both.see(
        lambda server: login(server, f"j={tokens[cookie]}" if cookie in tokens else None),
        world.config() + WS.format(', jwt_cookie: "j"'),
    )


def test_the_block_has_a_time_limit_of_its_own(both: Both) -> None:
    def look(server: WebSocketServer) -> list[str]:
        with closing(WebSocketClient(server.ws_port)) as client:
            return client.ending()

    config = "authorization { user: a, password: b, timeout: 30 }\n"
    found = both.see(look, config + WS.format(", authorization { user: w, password: pw, timeout: 0.3 }"))
    assert found == ["-ERR 'Authentication Timeout'", "close 1008 Authentication Timeout"]
