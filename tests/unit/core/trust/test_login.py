"""Logins by token: accepted users, their permissions, and the reason for each refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjs.core.trust.login import TokenCheck
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, operator_token, user_token

OPERATOR = Key("operator", b"o" * 32)
A, B, SIGNER, USER, OTHER = (
    Key(kind, bytes([at]) * 32) for at, kind in enumerate(["account"] * 3 + ["user"] * 2)
)
PROXY = Key("server", b"p" * 32)
START_S = 1_700_000_000  # the start of the virtual clock: 22:13:20 UTC
NONCE = "abc"
TOKEN = user_token(A, USER, "alice", issued_at=1)


def node(options: dict[str, Any] | None = None, **claims: Any) -> VirtualNode:
    preload = {A.public: account_token(OPERATOR, A, "A", issued_at=1, **claims)}
    fixture = VirtualNode(
        trusted_keys=OPERATOR.public, resolver="MEMORY", resolver_preload=preload, **(options or {})
    )
    fixture.log.debug_on = True
    return fixture


def log_in(fixture: VirtualNode, jwt: str, key: Key | None = USER, **more: Any) -> RawClient:
    """Return a client that sent the token and signed the nonce with `key`."""
    client = fixture.client(None)
    said: dict[str, Any] = {"jwt": jwt, "verbose": False, "headers": True, **more}
    if key is not None:
        said["sig"] = key.sign_nonce(client.session.nonce)
    client.send(b"CONNECT %b\r\n" % json.dumps(said).encode())
    return client


def reasons(fixture: VirtualNode, client: RawClient) -> list[str]:
    """Return the texts that the log has about one client, without the client's name."""
    name = f"{client.session} - "
    return [text.removeprefix(name) for _, text in fixture.log.lines if text.startswith(name)]


# -- the check in the thread -------------------------------------------------------------------------------------
def checked(*texts: str, signature: str = "", nonce: str = NONCE) -> TokenCheck:
    finished: list[TokenCheck] = []
    check = TokenCheck(texts, nonce, signature, finished.append)
    check.run()
    check.finish(None)
    assert finished == [check]
    return check


def test_the_user_must_have_signed_the_nonce() -> None:
    assert checked(TOKEN, signature=USER.sign_nonce(NONCE)).signature_fault == ""


@pytest.mark.parametrize(
    ("signature", "fault"),
    [
        ("", "Signature missing"),
        ("é", "Signature not valid base64"),
        ("A", "Signature not valid base64"),
        ("AAAA", "Signature not verified"),
        (USER.sign_nonce("another nonce"), "Signature not verified"),
        (OTHER.sign_nonce(NONCE), "Signature not verified"),
    ],
)
def test_a_signature_of_something_else_is_named(signature: str, fault: str) -> None:
    assert checked(TOKEN, signature=signature).signature_fault == fault


def test_a_token_about_no_user_has_no_signature() -> None:
    found = checked(user_token(A, A, issued_at=1), signature=A.sign_nonce(NONCE))  # type: ignore[arg-type]
    assert found.signature_fault == "User nkey not valid: nkeys: invalid public key"


def test_the_first_token_of_a_user_counts() -> None:
    found = checked(account_token(OPERATOR, A), TOKEN, user_token(A, OTHER), signature=USER.sign_nonce(NONCE))
    assert found.user is not None
    assert (found.user.head.subject, found.text, found.signature_fault) == (USER.public, TOKEN, "")


def test_the_fault_is_that_of_the_last_token() -> None:
    found = checked("a.b.c", "x")
    assert found.user is None
    assert found.fault == "User JWT not valid: expected 3 chunks"


def test_no_token_is_a_fault() -> None:
    assert checked().fault == "Authentication requires a user JWT"


def test_a_cancelled_check_does_and_says_nothing() -> None:
    check = TokenCheck((TOKEN,), NONCE, "", lambda _: pytest.fail("it was cancelled"))
    check.cancelled = True
    check.run()
    check.finish(None)
    assert check.user is None


def test_a_check_that_failed_lets_nobody_in() -> None:
    finished: list[TokenCheck] = []
    check = TokenCheck((TOKEN,), NONCE, USER.sign_nonce(NONCE), finished.append)
    check.run()
    check.finish(MemoryError())
    assert [each.user for each in finished] == [None]


# -- who is refused ----------------------------------------------------------------------------------------------
ROLE = {
    "kind": "user_scope",
    "key": SIGNER.public,
    "role": "r",
    "template": {"pub": {"allow": ["a.{{name()}}"]}},
}
Case = tuple[dict[str, Any], str, Key | None, str]  # claims of the account, the token, the signer, the reason
REFUSED: dict[str, Case] = {
    "no signature": ({}, TOKEN, None, "Signature missing"),
    "another user": ({}, TOKEN, OTHER, "Signature not verified"),
    "another issuer": (
        {},
        user_token(SIGNER, USER, issued_at=1, issuer_account=A.public),
        USER,
        "User JWT issuer is not known",
    ),
    "an unknown account": (
        {},
        user_token(B, USER, issued_at=1),
        USER,
        "Account JWT lookup error: account missing or expired",
    ),
    "an expired token": (
        {},
        user_token(A, USER, issued_at=1, claims={"exp": START_S - 1}),
        USER,
        "User JWT no longer valid: claim is expired",
    ),
    "a token of tomorrow": (
        {},
        user_token(A, USER, issued_at=1, claims={"nbf": START_S + 86400}),
        USER,
        "User JWT no longer valid: claim is not yet valid",
    ),
    "a revoked user": ({"revocations": {USER.public: 5}}, TOKEN, USER, "User authentication revoked"),
    "all users revoked": ({"revocations": {"*": 5}}, TOKEN, USER, "User authentication revoked"),
    "a forbidden bearer": (
        {"limits": {"disallow_bearer": True}},
        user_token(A, USER, issued_at=1, bearer_token=True),
        None,
        "Account does not allow bearer tokens",
    ),
    "another network": (
        {},
        user_token(A, USER, issued_at=1, src=["10.0.0.0/8"]),
        USER,
        "Bad src Ip 127.0.0.1",
    ),
    "another time": (
        {},
        user_token(
            A,
            USER,
            issued_at=1,
            times=[{"start": "08:00:00", "end": "09:00:00"}],
            times_location="UTC",
        ),
        USER,
        "Outside connect times",
    ),
    "another connection": (
        {},
        user_token(A, USER, issued_at=1, allowed_connection_types=["WEBSOCKET"]),
        USER,
        "Connection type not allowed",
    ),
    "unknown connections": (
        {},
        user_token(A, USER, issued_at=1, allowed_connection_types=["SMOKE"]),
        USER,
        "invalid connection types ['SMOKE']",
    ),
    "a role and limits of its own": (
        {"signing_keys": [ROLE]},
        user_token(SIGNER, USER, "al", issued_at=1, issuer_account=A.public),
        USER,
        "User JWT is not valid: scoped users require no permissions or limits set",
    ),
    "a role that cannot be filled in": (
        {"signing_keys": [{**ROLE, "template": {"pub": {"deny": ["{{tag(team)}}"]}}}]},
        user_token(SIGNER, USER, "al", issued_at=1, scoped=True, issuer_account=A.public),
        USER,
        "User JWT generated invalid permissions",
    ),
    "not through a proxy": (
        {},
        user_token(A, USER, issued_at=1, proxy_required=True),
        USER,
        "proxy connection required",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_client_is_refused_and_the_log_says_why(name: str) -> None:
    claims, jwt, key, reason = REFUSED[name]
    with node(**claims) as fixture:
        client = log_in(fixture, jwt, key)
        assert client.take() == b"-ERR 'Authorization Violation'\r\n"
        assert client.link.closed
        assert reason in reasons(fixture, client)
        assert fixture.node.accounts.get(A.public) is None or not fixture.node.accounts[A.public].sessions


def test_an_account_that_is_not_pinned_is_counted() -> None:
    with node({"resolver_pinned_accounts": [B.public]}) as fixture:
        client = log_in(fixture, TOKEN)
        assert f"Account {A.public} not listed as operator pinned account" in reasons(fixture, client)
        assert fixture.node.trust is not None
        assert fixture.node.trust.pinned_failures == 1


# -- who is let in -----------------------------------------------------------------------------------------------
def let_in(fixture: VirtualNode, jwt: str, key: Key | None = USER) -> RawClient:
    client = log_in(fixture, jwt, key)
    assert not client.link.closed, reasons(fixture, client)
    client.take()
    return client


def published(client: RawClient, *subjects: str) -> list[str]:
    """Return those of `subjects` that the client may publish to."""
    allowed = []
    for subject in subjects:
        client.send(b"PUB %b 0\r\n\r\n" % subject.encode())
        if b"Permissions Violation" not in client.take():
            allowed.append(subject)
    return allowed


def test_the_permissions_are_those_of_the_token() -> None:
    with node(default_permissions={"pub": {"allow": ["d"]}}) as fixture:
        client = let_in(fixture, user_token(A, USER, issued_at=1, pub={"allow": ["a"]}))
        assert published(client, "a", "d") == ["a"]


def test_without_permissions_of_its_own_those_of_the_account_count() -> None:
    with node(default_permissions={"pub": {"allow": ["d"]}}) as fixture:
        assert published(let_in(fixture, TOKEN), "a", "d") == ["d"]


def test_the_permissions_of_a_role_have_the_name_of_the_user() -> None:
    with node(signing_keys=[ROLE]) as fixture:
        jwt = user_token(SIGNER, USER, "al", issued_at=1, scoped=True, issuer_account=A.public)
        assert published(let_in(fixture, jwt), "a.al", "a.bob") == ["a.al"]


def test_a_bearer_need_not_sign() -> None:
    with node() as fixture:
        let_in(fixture, user_token(A, USER, issued_at=1, bearer_token=True), None)


def test_a_user_that_was_made_after_the_revocation_is_let_in() -> None:
    with node(revocations={USER.public: 5}) as fixture:
        let_in(fixture, user_token(A, USER, issued_at=6))


def test_a_client_with_a_signature_of_a_trusted_proxy_is_let_in_where_one_is_required() -> None:
    with node({"proxies": {"trusted": [{"key": PROXY.public}]}}) as fixture:
        client = fixture.client(None)
        said = {
            "jwt": user_token(A, USER, issued_at=1, proxy_required=True),
            "sig": USER.sign_nonce(client.session.nonce),
            "proxy_sig": PROXY.sign_nonce(client.session.nonce),
        }
        client.send(b"CONNECT %b\r\n" % json.dumps(said).encode())
        assert not client.link.closed


@pytest.mark.parametrize(("exp", "times_s"), [(START_S + 60, 400), (START_S + 4000, 60)])
def test_the_earliest_end_of_a_user_counts(exp: int, times_s: int) -> None:
    """The earlier of two times applies: the expiry of the token, and the end of the permitted time of day."""
    end = 22 * 3600 + 13 * 60 + 20 + times_s
    times = [{"start": "22:00:00", "end": f"{end // 3600}:{end // 60 % 60:02}:{end % 60:02}"}]
    jwt = user_token(A, USER, issued_at=1, claims={"exp": exp}, times=times, times_location="UTC")
    with node() as fixture:
        client = let_in(fixture, jwt)
        fixture.advance(seconds=58)
        assert not client.link.closed
        fixture.advance(seconds=4)
        assert b"-ERR 'User Authentication Expired'" in client.take()


def test_limits_of_the_token_bound_its_client() -> None:
    with node() as fixture:
        client = let_in(fixture, user_token(A, USER, issued_at=1, payload=3, subs=1))
        client.send(b"SUB a 1\r\nSUB b 2\r\n")
        assert client.take() == b"-ERR 'maximum subscriptions exceeded'\r\n"
        client.send(b"PUB a 4\r\nlong\r\n")
        assert b"-ERR 'Maximum Payload Violation'" in client.take()


def test_a_client_without_a_token_has_that_of_the_sentinel() -> None:
    sentinel = user_token(A, USER, issued_at=1, bearer_token=True)
    operator = operator_token(OPERATOR, system_account=B.public)
    preload = {key.public: account_token(OPERATOR, key, issued_at=1) for key in (A, B)}
    with VirtualNode(
        operator=operator, resolver="MEMORY", resolver_preload=preload, default_sentinel=sentinel
    ) as fixture:
        client = fixture.client(b"{}")
        assert not client.link.closed
        assert client.session.account.name == A.public


# -- the end of a login ------------------------------------------------------------------------------------------
def test_a_login_that_is_cancelled_while_its_account_is_fetched_is_forgotten() -> None:
    with node() as fixture:
        fixture.hold_jobs = True
        client = log_in(fixture, TOKEN)
        run_one(fixture)  # run the check; the account is fetched next
        client.session.connection_lost()
        fixture.hold_jobs = False
        fixture.turn()
        assert fixture.node.sessions == {}
        assert not fixture.node.faults.counts
        assert not fixture.node.accounts[A.public].sessions


def run_one(fixture: VirtualNode) -> None:
    """Run the queued jobs; later ones stay queued."""
    fixture.hold_jobs = False
    fixture.run_jobs()
    fixture.hold_jobs = True
    fixture.turn()
