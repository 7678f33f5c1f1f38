"""Accounts and users of tokens, on a node with a virtual clock."""

from __future__ import annotations

import json
from typing import Any

from pyjs.core.trust.accounts import TrustedAccount
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, user_token

OPERATOR = Key("operator", b"o" * 32)
A, B, USER = Key("account", b"a" * 32), Key("account", b"b" * 32), Key("user", b"u" * 32)
START_S = 1_700_000_000  # of the virtual clock


def node(**claims: Any) -> VirtualNode:
    preload = {A.public: account_token(OPERATOR, A, "A", issued_at=1, **claims)}
    return VirtualNode(trusted_keys=OPERATOR.public, resolver="MEMORY", resolver_preload=preload)


def log_in(fixture: VirtualNode, **given: Any) -> RawClient:
    jwt = user_token(A, USER, "alice", issued_at=1, bearer_token=True, **given)
    return fixture.client(json.dumps({"jwt": jwt}).encode())


def test_input_waits_for_the_login() -> None:
    with node() as fixture:
        fixture.hold_jobs = True
        client = log_in(fixture)
        client.send(b"PING\r\n")
        assert client.take() == b""
        fixture.hold_jobs = False
        fixture.turn()
        assert client.take().count(b"PONG") == 2


def test_a_client_that_leaves_during_its_login_leaves_nothing() -> None:
    with node() as fixture:
        fixture.hold_jobs = True
        client = log_in(fixture)
        client.session.connection_lost()
        fixture.hold_jobs = False
        fixture.turn()
        assert fixture.node.sessions == {}
        assert not fixture.node.faults.counts


def test_a_user_is_closed_when_its_token_expires() -> None:
    with node() as fixture:
        client = log_in(fixture, claims={"exp": START_S + 60})
        fixture.advance(seconds=59)
        assert not client.link.closed
        fixture.advance(seconds=2)
        assert b"-ERR 'User Authentication Expired'" in client.take()
        assert client.session.closed_reason == "Authentication Expired"


def test_the_clients_of_an_account_are_closed_when_it_expires() -> None:
    with node(claims={"exp": START_S + 60}) as fixture:
        client = log_in(fixture)
        fixture.advance(seconds=61)
        assert b"-ERR 'Account Authentication Expired'" in client.take()
        assert log_in(fixture).link.closed


def test_an_account_that_imports_from_nobody_works_and_is_named_in_the_log() -> None:
    imports = [{"subject": "a", "account": B.public, "type": "stream"}]
    with node(imports=imports) as fixture:
        assert not log_in(fixture).link.closed
        line = f"Can't locate account [{B.public}] for imports of {A.public}/A"
        assert ("ERR", line) in fixture.log.lines


def test_a_fetch_that_succeeded_does_not_time_out_the_next_one() -> None:
    with node() as fixture:
        trust = fixture.node.trust
        found: list[TrustedAccount | None] = []
        assert trust is not None
        trust.find(B.public, found.append)
        fixture.turn()
        fixture.advance(seconds=1)
        fixture.hold_jobs = True
        trust.find(B.public, found.append)
        fixture.advance(seconds=1)
        assert found == [None]
        assert "timed out" not in str(fixture.log.lines)
        fixture.hold_jobs = False
        fixture.turn()
        assert found == [None, None]


def test_a_reload_applies_new_tokens_of_the_file() -> None:
    with node() as fixture:
        client = log_in(fixture)
        fixture.options.resolver_preload = {
            A.public: account_token(OPERATOR, A, "A", revocations={USER.public: 5})
        }
        fixture.node.apply_options(fixture.options)
        assert client.session.closed_reason == "Credentials Revoked"
        assert log_in(fixture).link.closed


def test_many_logins_share_one_fetch() -> None:
    with node() as fixture:
        trust = fixture.node.trust
        found: list[TrustedAccount | None] = []
        assert trust is not None
        for _ in range(3):
            trust.find(A.public, found.append)
        assert len(fixture.node.turn_state.jobs) == 1
        fixture.turn()
        assert [each.name for each in found if each is not None] == [A.public] * 3


def test_jetstream_of_an_account_follows_its_token() -> None:
    limits = {"mem_storage": 1000, "disk_storage": 0, "streams": 1, "consumer": -1}
    preload = {A.public: account_token(OPERATOR, A, "A", limits)}
    keys: dict[str, Any] = {
        "trusted_keys": OPERATOR.public,
        "resolver": "MEMORY",
        "resolver_preload": preload,
    }
    with VirtualNode(jetstream=True, **keys) as fixture:
        client = log_in(fixture)
        info = json.loads(client.request(b"$JS.API.INFO").payload)
        assert info["limits"]["max_memory"] == 1000
        assert info["limits"]["max_streams"] == 1
