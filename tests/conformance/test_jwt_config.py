"""Operator configurations that nats-server refuses: our server refuses them with the same errors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerFailed, ServerProcess, our_command, peer_command

from pyjs.testing.jwt import Key, account_token, operator_token, user_token

PEER = peer_command()
pytestmark = needs_peer
OPERATOR, SYSTEM, A = Key("operator"), Key("account"), Key("account")
ALICE = Key("user")
TOKEN = operator_token(OPERATOR, system_account=SYSTEM.public)
BARE = operator_token(OPERATOR)
MEMORY = f"operator: {BARE}\nresolver: MEMORY\n"
PRELOAD = f"resolver_preload {{ {SYSTEM.public}: {account_token(OPERATOR, SYSTEM)} }}\n"
DIRECTORY = f'operator: {BARE}\nsystem_account: {SYSTEM.public}\nresolver {{ dir: "<<store>>/jwt", MORE }}\n'


def directory(more: str) -> str:
    return DIRECTORY.replace("MORE", more)


ISSUER = f"issuer: {A.public}"

REFUSED: dict[str, tuple[str, str]] = {
    "no such file": (
        "operator: nowhere.jwt\nresolver: MEMORY",
        "error parsing operator JWT: open nowhere.jwt: no such file",
    ),
    "no token": ("operator: eyJabc\nresolver: MEMORY", "error parsing operator JWT: expected 3 chunks"),
    "another token": (
        f"operator: {account_token(OPERATOR, A)}\nresolver: MEMORY",
        "error parsing operator JWT: not operator claim",
    ),
    "no resolver": (f"operator: [{BARE}, {TOKEN}]", "operators require an account resolver to be configured"),
    "accounts": (MEMORY + "accounts { A {} }", "operators do not allow Accounts to be configured directly"),
    "users": (
        MEMORY + "authorization { users: [{user: a, password: b}] }",
        "operators do not allow users to be configured directly",
    ),
    "both": (
        MEMORY + f"trusted_keys: {OPERATOR.public}",
        "conflicting options for 'TrustedKeys' and 'TrustedOperators'",
    ),
    "no operator key": ("trusted_keys: abc", 'trust key "abc" required to be a valid public operator nkey'),
    "another system account": (
        f"operator: {TOKEN}\nresolver: MEMORY\nsystem_account: {A.public}",
        "system_account in config and operator JWT must be identical",
    ),
    "a system account that is not there": (
        f"operator: {TOKEN}\nresolver: MEMORY",
        "account missing",
    ),
    "a directory without a system account": (
        f'operator: {BARE}\nresolver {{ type: full, dir: "<<store>>/jwt" }}',
        "using nats based account resolver - the system account needs to be specified",
    ),
    "a resolver of no kind": (
        f"operator: {BARE}\nresolver: SOMETHING",
        "error parsing account resolver, should be MEM or",
    ),
    "no directory": (
        f"operator: {BARE}\nresolver {{ type: full }}",
        "dir has no value and needs to point to a directory",
    ),
    "a cache that removes": (
        directory("type: cache, allow_delete: true"),
        "CACHE does not accept allow_delete",
    ),
    "a full directory that forgets": (directory('type: full, ttl: "2s"'), "FULL does not accept ttl"),
    "removal by half": (
        directory("type: full, hard_delete: true"),
        "hard_delete has no effect without delete",
    ),
    "a preloaded token of a user": (
        MEMORY + f"resolver_preload {{ {A.public}: {user_token(A, ALICE)} }}",
        "invalid account JWT",
    ),
    "preloads of a server": (
        f'operator: {TOKEN}\nresolver: URL("http://127.0.0.1:1/")\n{PRELOAD}',
        "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR",
    ),
    "nobody at the url": (
        f'operator: {TOKEN}\nresolver: URL("http://127.0.0.1:1/accounts/")',
        'could not fetch <"http://127.0.0.1:1/accounts/">',
    ),
    "a newer server": (
        f"operator: {operator_token(OPERATOR, assert_server_version='3.0.0')}\nresolver: MEMORY",
        "expected major version 3 > server major version 2",
    ),
    "no version": (
        f"operator: {operator_token(OPERATOR, assert_server_version='a.b')}\nresolver: MEMORY",
        "asserted server version must be of the form <major>.<minor>.<update>",
    ),
    "a pinned account that is none": (
        MEMORY + "resolver_pinned_accounts: [abc]",
        'pinned account key "abc" is not a valid public account nkey',
    ),
    "a sentinel without an operator": (
        f"default_sentinel: {user_token(A, ALICE, bearer_token=True)}",
        "default sentinel requires operators and accounts",
    ),
    "a sentinel that is no token": (MEMORY + "default_sentinel: abc", "default sentinel JWT not valid"),
    "a sentinel that is no bearer": (
        MEMORY + f"default_sentinel: {user_token(A, ALICE)}",
        "default sentinel must be a bearer token",
    ),
    "a user without credentials": (
        MEMORY + "no_auth_user: a",
        "no_auth_user not compatible with Trusted Operator",
    ),
    "a callout beside operators": (
        MEMORY + f"authorization {{ auth_callout {{ {ISSUER}, auth_users: [a] }} }}",
        "operators do not allow authorization callouts to be configured directly",
    ),
    "a callout without an issuer": (
        "authorization { auth_callout { auth_users: [a] } }",
        "Authorization callouts require an issuer to be specified",
    ),
    "a callout without users": (
        f"authorization {{ auth_callout {{ {ISSUER} }} }}",
        "Authorization callouts require authorized users to be specified",
    ),
    "a callout by nobody": (
        "authorization { auth_callout { issuer: abc, auth_users: [a] } }",
        'Expected callout user to be a valid public account nkey, got "abc"',
    ),
    "a callout with no xkey": (
        f"authorization {{ auth_callout {{ {ISSUER}, auth_users: [a], xkey: abc }} }}",
        'Expected callout xkey to be a valid public xkey, got "abc"',
    ),
    "an unknown kind of connection": (
        "authorization { users: [{user: a, password: b, allowed_connection_types: [SMOKE]}] }",
        'invalid connection types ["SMOKE"]',
    ),
}
ACCEPTED = {
    "memory": MEMORY,
    "trusted keys": f"trusted_keys: {OPERATOR.public}\nresolver: MEMORY",
    "an expired operator": f"operator: {operator_token(OPERATOR)}\nresolver: MEMORY",
    "a map of memory": f"operator: {BARE}\nresolver {{ type: memory }}",
    "a directory": directory('type: full, allow_delete: true, interval: "2m", timeout: "1.9s", limit: 10'),
    "a cache": directory('type: cache, ttl: "1h", limit: 10'),
    "expired accounts": MEMORY
    + f"resolver_preload {{ {A.public}: {account_token(OPERATOR, A, claims={'exp': int(time.time()) - 5})} }}",
    "connection types": "authorization { users: [{user: a, password: b, allowed_connection_types: [standard]}] }",
}


def run(command: list[str], config: str, directory: Path) -> str:
    """Start a server; return the error with which it exits, or "" if there is none."""
    directory.mkdir()
    server = ServerProcess(command, config, directory, with_http=False, may_fork=True)
    try:
        server.start()
    except ServerFailed as failed:
        return str(failed)
    finally:
        server.kill()
    return ""


@pytest.mark.parametrize("name", list(REFUSED))
def test_files_that_both_refuse(name: str, tmp_path: Path) -> None:
    config, text = REFUSED[name]
    assert PEER is not None
    assert text in run(PEER, config, tmp_path / "peer")
    assert text in run(our_command(), config, tmp_path / "ours")


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_files_that_both_accept(name: str, tmp_path: Path) -> None:
    assert PEER is not None
    assert run(PEER, ACCEPTED[name], tmp_path / "peer") == ""
    assert run(our_command(), ACCEPTED[name], tmp_path / "ours") == ""
