"""Accounts and users from tokens, on a node with a virtual clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjs.core.job import Job
from pyjs.core.trust.accounts import FETCHES_MAX, TrustedAccount
from pyjs.core.trust.convert import account_token as converted
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, user_token

OPERATOR = Key("operator", b"o" * 32)
A, B, USER = Key("account", b"a" * 32), Key("account", b"b" * 32), Key("user", b"u" * 32)
START_S = 1_700_000_000  # the start of the virtual clock


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


def stranger() -> str:
    """Return the public key of an account for which there is no token."""
    return Key("account").public


def test_a_fetch_that_nobody_waits_for_any_more_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with node() as fixture:
        trust = fixture.node.trust
        assert trust is not None
        monkeypatch.setattr(trust.resolver, "fetch", asked.append)
        fixture.hold_jobs = True
        found: list[TrustedAccount | None] = []
        trust.find(stranger(), found.append)
        fixture.turn()
        fixture.advance(seconds=3)
        fixture.hold_jobs = False
        fixture.turn()
        assert found == [None]
        assert asked == []


def test_a_login_uses_the_fetch_that_an_earlier_one_gave_up() -> None:
    with node() as fixture:
        trust = fixture.node.trust
        assert trust is not None
        fixture.hold_jobs = True
        found: list[TrustedAccount | None] = []
        trust.find(A.public, found.append)
        fixture.turn()
        fixture.advance(seconds=3)
        trust.find(A.public, found.append)
        assert len(fixture.node.turn_state.jobs) == 1
        fixture.hold_jobs = False
        fixture.turn()
        assert [None if each is None else each.name for each in found] == [None, A.public]


def test_fetches_that_timed_out_count_until_they_return() -> None:
    with node() as fixture:
        trust = fixture.node.trust
        assert trust is not None
        fixture.hold_jobs = True
        found: list[TrustedAccount | None] = []
        for _ in range(FETCHES_MAX):
            trust.find(stranger(), found.append)
        fixture.turn()
        fixture.advance(seconds=3)
        found.clear()
        trust.find(stranger(), found.append)
        assert found == [None]
        assert ("WRN", "Account fetch failed: too many accounts are being fetched") in fixture.log.lines
        fixture.hold_jobs = False
        fixture.turn()
        trust.find(A.public, found.append)
        fixture.turn()
        assert found[-1] is not None


def test_an_account_that_a_reload_removes_lets_nobody_in_until_its_token_is_back() -> None:
    with node() as fixture:
        client = log_in(fixture)
        given = fixture.options.resolver_preload
        fixture.options.resolver_preload = {}
        fixture.node.apply_options(fixture.options)
        assert client.take().endswith(b"-ERR 'Authorization Violation'\r\n")
        assert log_in(fixture).link.closed
        fixture.options.resolver_preload = given
        fixture.node.apply_options(fixture.options)
        assert not log_in(fixture).link.closed


def step(fixture: VirtualNode) -> list[Job]:
    """Run the queued jobs; the consequences of their results are left to the next turn."""
    jobs = fixture.node.turn_state.take("jobs")
    for job in jobs:
        job.run()
    return jobs


def deliver(fixture: VirtualNode, jobs: list[Job]) -> None:
    """Give the results of jobs to the node."""
    fixture.node.turn_state.finished.extend((job, None) for job in jobs)
    fixture.turn()


def test_a_token_that_was_read_before_a_reload_does_not_bring_its_account_back() -> None:
    with node() as fixture:
        fixture.hold_jobs = True
        client = log_in(fixture)
        deliver(fixture, step(fixture))  # check the token of the user
        fetches = step(fixture)
        fixture.options.resolver_preload = {}
        fixture.node.apply_options(fixture.options)
        fixture.hold_jobs = False
        deliver(fixture, fetches)
        assert client.take().endswith(b"-ERR 'Authorization Violation'\r\n")
        assert fixture.node.trust is not None
        assert A.public not in fixture.node.trust.accounts


def test_a_login_whose_account_is_not_pinned_any_more_when_it_is_found_is_refused() -> None:
    with node() as fixture:
        fixture.hold_jobs = True
        client = log_in(fixture)
        deliver(fixture, step(fixture))
        fixture.options.resolver_pinned_accounts = (B.public,)
        fixture.node.apply_options(fixture.options)
        fixture.hold_jobs = False
        fixture.turn()
        assert client.take().endswith(b"-ERR 'Authorization Violation'\r\n")


def test_a_reload_closes_the_clients_of_accounts_that_are_not_pinned_any_more() -> None:
    with node() as fixture:
        client = log_in(fixture)
        fixture.options.resolver_pinned_accounts = (B.public,)
        fixture.node.apply_options(fixture.options)
        assert client.take().endswith(b"-ERR 'Authorization Violation'\r\n")


def test_the_guard_of_callout_requests_survives_a_new_token_of_the_account() -> None:
    external = {"auth_users": [USER.public]}
    with node(authorization=external) as fixture:
        trust = fixture.node.trust
        client = log_in(fixture)
        assert trust is not None
        changed = account_token(
            OPERATOR, A, "A", authorization=external, default_permissions={"pub": {"deny": ["no"]}}
        )
        trust.apply(A.public, converted(changed, START_S))
        client.send(b"PUB no 0\r\n\r\nPUB $SYS.REQ.USER.AUTH 0\r\n\r\n")
        answer = client.take()
        assert b'Permissions Violation for Publish to "no"' in answer
        assert b'Permissions Violation for Publish to "$SYS.REQ.USER.AUTH"' in answer
