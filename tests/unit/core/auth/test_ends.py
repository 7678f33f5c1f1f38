"""Sessions that end before, during and after login leave no reference cycles, which the server never collects."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from pyjs.core.session import ClientSession
from pyjs.testing import VirtualNode
from pyjs.testing.jwt import Key, account_token, operator_token, user_token

OPERATOR, SYSTEM, ACCOUNT, USER = Key("operator"), Key("account"), Key("account"), Key("user")
TOKENS = (
    f"operator: {operator_token(OPERATOR, system_account=SYSTEM.public)}\nresolver: MEMORY\nresolver_preload {{\n"
    f"{SYSTEM.public}: {account_token(OPERATOR, SYSTEM)}\n{ACCOUNT.public}: {account_token(OPERATOR, ACCOUNT)}\n}}\n"
)
CALLOUT = (
    "accounts { AUTH { users: [{user: auth, password: a}] } }\n"
    "authorization { timeout: 1, auth_callout {"
    f" issuer: {ACCOUNT.public}, account: AUTH, auth_users: [auth] }} }}\n"
)
PASSWORD = "authorization { timeout: 1, user: a, password: b }\n"
HASHED = (
    'authorization { users: [{ user: a, password: "'
    "$2a$04$ocZdjmtwFeYDjJl9SSlF3eEXSNdjC6Pmnwz.M3wzuJBPuUYUH1QPy"
    '" }] }\n'
)


def connect(**fields: object) -> bytes:
    """Return CONNECT and PING."""
    return b"CONNECT " + json.dumps({"verbose": False, **fields}).encode() + b"\r\nPING\r\n"


CASES = {
    "never says anything": (PASSWORD, b""),
    "half a log-in": (PASSWORD, b"CONN"),
    "a wrong password": (PASSWORD, connect(user="a")),
    "a wrong hashed password": (HASHED, connect(user="a", **{"pass": "x"})),
    "no token": (TOKENS, connect(jwt="x")),
    "a token of another account": (TOKENS, connect(jwt=user_token(Key("account"), USER, bearer_token=True))),
    "a wrong signature": (TOKENS, connect(jwt=user_token(ACCOUNT, USER), sig="A" * 86)),
    "a good token": (TOKENS, connect(jwt=user_token(ACCOUNT, USER, bearer_token=True))),
    "a service that does not answer": (CALLOUT, connect(user="u")),
    "an unknown operation": ("", connect() + b"SUB a 1\r\nNONSENSE\r\n"),
    "nothing wrong": ("", connect() + b"SUB a 1\r\nPUB a b 1\r\nx\r\n"),
}


def sessions() -> int:
    """Return how many sessions there are."""
    return sum(type(each) is ClientSession for each in gc.get_objects())


def come_and_leave(node: VirtualNode, data: bytes, seconds: int) -> None:
    client = node.client(None)
    if data:
        client.send(data)
    node.advance(seconds=seconds)
    if not client.session.closed_reason:
        client.session.connection_lost()
    node.advance(seconds=4)
    assert client.session.closed_reason


@pytest.mark.parametrize("seconds", [0, 4], ids=["leaves", "stays"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_session_that_ended_is_freed_at_once(case: tuple[str, bytes], seconds: int, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(case[0])
    with VirtualNode(path) as node:
        if case[0] == CALLOUT:
            node.client(None).send(
                b'CONNECT {"user":"auth","pass":"a"}\r\nSUB $SYS.REQ.USER.AUTH 2\r\nPING\r\n'
            )
        gc.collect()
        before = sessions()
        gc.disable()
        try:
            for _ in range(3):
                come_and_leave(node, case[1], seconds)
            assert sessions() == before
        finally:
            gc.enable()
