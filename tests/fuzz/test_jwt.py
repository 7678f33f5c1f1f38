"""Hostile tokens: decoding and validation end with a TokenFault or with claims of the right types.

Tokens are signed, so that their claims are examined; some are damaged after signing. PYJS_JWT_CASES and
PYJS_FUZZ_SEED set the number of cases and their seed.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

from pyjs.claims.account import AccountClaims, account_issues, account_of
from pyjs.claims.authorization import response_issues, response_of
from pyjs.claims.exchange import activation_of
from pyjs.claims.operator import operator_of, version_parts
from pyjs.claims.roles import BadTemplate, Subjects, filled_grant, may_come_from, seconds_allowed
from pyjs.claims.token import Token, TokenFault, decode
from pyjs.claims.user import UserClaims, user_issues, user_of
from pyjs.testing import VirtualNode
from pyjs.testing.jwt import Key, account_token, operator_token, token, user_token

CASES = int(os.environ.get("PYJS_JWT_CASES", "20000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
SIGNED_EVERY = 10  # signing takes longer than everything else
OPERATOR, ACCOUNT, USER = Key("operator", b"o" * 32), Key("account", b"a" * 32), Key("user", b"u" * 32)
GRANT: dict[str, Any] = {
    "pub": {"allow": ["a.{{name()}}", "{{tag(x)}}"], "deny": ["{{tag(y)}}.{{account-tag(z)}}"]},
    "sub": {"allow": ["a b"], "deny": [">"]},
    "resp": {"max": 1, "ttl": 5},
    "src": ["10.0.0.0/8"],
    "times": [{"start": "01:02:03", "end": "04:05:06"}],
    "times_location": "Europe/Berlin",
    "subs": -1,
    "data": 0,
    "payload": 5,
    "bearer_token": True,
    "allowed_connection_types": ["STANDARD"],
}
ACCOUNT_NATS: dict[str, Any] = {
    "limits": {"subs": -1, "conn": 5, "mem_storage": 5, "tiered_limits": {"R1": {"disk_storage": 4}}},
    "signing_keys": [ACCOUNT.public, {"kind": "user_scope", "key": ACCOUNT.public, "template": GRANT}],
    "revocations": {"*": 5},
    "default_permissions": {"pub": {"allow": ["a"]}},
    "imports": [{"subject": "a.*", "account": ACCOUNT.public, "type": "service", "local_subject": "b.$1"}],
    "exports": [
        {
            "subject": "a.*",
            "type": "stream",
            "account_token_position": 2,
            "service_latency": {"sampling": "headers"},
        }
    ],
    "mappings": {"a": [{"subject": "b"}]},
    "authorization": {"auth_users": [USER.public], "allowed_accounts": ["*"], "xkey": "X"},
    "trace": {"dest": "a", "sampling": 5},
}
BODIES: dict[str, tuple[Key, dict[str, Any]]] = {
    "operator": (OPERATOR, {"signing_keys": [OPERATOR.public], "assert_server_version": "2.1.3"}),
    "account": (OPERATOR, ACCOUNT_NATS),
    "user": (ACCOUNT, GRANT),
    "activation": (ACCOUNT, {"subject": "a", "kind": "stream"}),
    "authorization_response": (ACCOUNT, {"jwt": "a", "error": ""}),
    "generic": (OPERATOR, {"accounts": [ACCOUNT.public]}),
}
EDGES: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, -(1 << 63), 1.5, "", "a", "*", ">", "a..b", " ", "\0", "é", "{{",
    "{{}}", "{{tag(" * 50, "0.0.0.0/0", "::/0", "::/999", "24:00:00", "$9999999999", "x" * 5000, [], {}, [[]], [{}],
    [None], {"": 1}, ["a"] * 300, [""], {"allow": "a"}, "../../../etc/passwd",
]  # fmt: skip


def changed(chance: random.Random, value: Any) -> Any:
    """Return a copy of a JSON value with one place replaced, removed or repeated."""
    copy = json.loads(json.dumps(value))
    parent: Any = None
    at: Any = None
    here = copy
    while isinstance(here, dict | list) and here and (parent is None or chance.random() < 0.8):
        parent, at = (
            here,
            chance.choice(list(here)) if isinstance(here, dict) else chance.randrange(len(here)),
        )
        here = parent[at]
    if parent is None:
        return chance.choice(EDGES)
    what = chance.random()
    if what < 0.1:
        del parent[at]
    elif what < 0.2 and isinstance(parent, list):
        parent.append(here)
    else:
        parent[at] = chance.choice(EDGES)
    return copy


def use(made: Token) -> None:
    """Read a token as each kind, and validate the claims."""
    for read in (operator_of, account_of, user_of, activation_of, response_of):
        try:
            claims = read(made)
        except TokenFault:
            continue
        if isinstance(claims, UserClaims):
            user_issues(claims, 1_000)
            may_come_from(claims.grant, "10.1.2.3")
            seconds_allowed(claims.grant, 1_000.0)
            fill(claims)
        elif isinstance(claims, AccountClaims):
            account_issues(claims, 1_000)
            claims.is_revoked(USER.public, 5)
        elif read is response_of:
            response_issues(claims, 5)  # type: ignore[arg-type]
        elif read is operator_of:
            try:
                version_parts(claims.assert_server_version)  # type: ignore[union-attr]
            except TokenFault:
                pass


def fill(claims: UserClaims) -> None:
    try:
        filled_grant(claims.grant, Subjects(claims, "A", ("z:1", "z:2")))
    except BadTemplate:
        pass


def test_claims_of_any_shape() -> None:
    chance = random.Random(SEED)
    for case in range(CASES):
        kind = chance.choice(list(BODIES))
        key, nats = BODIES[kind]
        for _ in range(chance.randint(1, 4)):
            nats = changed(chance, nats)
            if not isinstance(nats, dict):
                nats = {}
        top: dict[str, Any] = {
            "iss": key.public,
            "sub": chance.choice([ACCOUNT.public, USER.public, "", "x"]),
        }
        top |= {"exp": chance.choice([0, 1, 1 << 62]), "name": "n"} if chance.random() < 0.5 else {}
        if case % SIGNED_EVERY:
            use(Token("", kind, chance.choice([1, 2]), top, {**nats, "type": kind}))
            continue
        try:
            text = token(key, kind, top["sub"], nats=nats)
        except (TypeError, ValueError):
            continue  # json.dumps cannot write such a large number
        use(decode(text, generic=kind == "generic"))


def test_damaged_texts() -> None:
    chance = random.Random(SEED)
    whole = [
        operator_token(OPERATOR),
        account_token(OPERATOR, ACCOUNT, **ACCOUNT_NATS),
        user_token(ACCOUNT, USER, **GRANT),
    ]
    for _ in range(CASES // 5):
        text = chance.choice(whole)
        begin = chance.randrange(len(text))
        end = min(len(text), begin + chance.choice([0, 1, 1, 2, 50, 1000]))
        middle = "".join(chance.choice("AZaz09-_=.+/\n é\0{") for _ in range(chance.choice([0, 1, 1, 3, 20])))
        damaged = text[:begin] + middle + text[end:]
        if damaged == text:
            continue
        try:
            found = decode(damaged)
        except TokenFault:
            continue
        # The last character of a part has bits that are ignored, as in nats-server.
        assert found.claims == decode(text).claims, f"a damaged token was accepted: {damaged}"


def test_logins_with_damaged_tokens_are_refused_and_the_node_goes_on() -> None:
    chance = random.Random(SEED)
    preload: dict[str, str] = {ACCOUNT.public: account_token(OPERATOR, ACCOUNT)}
    with VirtualNode(trusted_keys=OPERATOR.public, resolver="MEMORY", resolver_preload=preload) as node:
        good = user_token(ACCOUNT, USER, bearer_token=True)
        for _ in range(CASES // 200):
            at = chance.randrange(len(good))
            bad = good[:at] + chance.choice("AZ.-_ é") + good[at + 1 :]
            client = node.client(json.dumps({"jwt": bad}).encode())
            assert client.link.closed or bad == good
        client = node.client(json.dumps({"jwt": good}).encode())
        assert not client.link.closed
        assert not node.node.faults.counts
