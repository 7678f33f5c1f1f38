"""Log lines about a client name its library, account and user after its login, as those of nats-server do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.jwt_clients import WAIT_S, World, attempt
from tests.support.nkeys import Nkey

from pyjs.testing.jwt import Key, user_token

pytestmark = needs_peer
NKEY = Nkey("label")
WORLD, ACCOUNT, NAMELESS, USER = World(), Key("account"), Key("account"), Key("user")
WORLD.add(ACCOUNT, "ORDERS")
WORLD.add(NAMELESS)
USERS = f"""accounts {{ A {{ users: [{{user: a, password: p}}, {{nkey: {NKEY.public}}}] }} }}
no_auth_user: a"""
JWT: dict[str, Any] = {"jwt": user_token(ACCOUNT, USER, "u"), "key": USER}
LOGINS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {}),
    "a name without a login": ("", {"user": "fake"}),
    "a library": ("", {"lang": "py", "version": "1.2", "name": "mine"}),
    "a language": ("", {"lang": "py"}),
    "a name only": ("", {"name": 'say "hi"'}),
    "a user": (USERS, {"user": "a", "pass": "p", "name": "n"}),
    "the default user": (USERS, {"version": "2"}),
    "a token": ("authorization { token: t }", {"auth_token": "t"}),
    "a refused user": (USERS, {"user": "a", "pass": "x", "name": "n"}),
    "a JWT": (WORLD.config(), JWT),
    "a JWT of an account without a name": (
        WORLD.config(),
        {"jwt": user_token(NAMELESS, USER, "u"), "key": USER},
    ),
    "a JWT beside a user name": (WORLD.config(), {**JWT, "user": "fake", "lang": "py"}),
}


@pytest.mark.parametrize("name", LOGINS)
def test_the_end_of_a_connection_is_logged_with_its_user(tmp_path: Path, name: str) -> None:
    config, fields = LOGINS[name]

    def look(server: ServerProcess) -> list[str]:
        attempt(server.port, **fields)
        assert server.logged("Client connection closed", WAIT_S)
        log = server.config_path.with_name("log").read_text()
        lines = [line for line in log.splitlines() if "Client connection" in line or "authentication" in line]
        return [re.sub(r"^.*127.0.0.1:\d+ - [cw]id:\d+", "", line) for line in lines]

    peer, ours = of_both(tmp_path, f"debug: true\n{config}", look)
    assert ours == peer
