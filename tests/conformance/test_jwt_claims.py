"""Our server answers requests about tokens of accounts as nats-server does, and tokens have the same effects."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.jwt_clients import TokenClient, World, attempt

from pyjs.testing.jwt import Key, account_token, operator_token, token, user_token

pytestmark = needs_peer
NOW = int(time.time())
WORLD = World()
OPERATOR = WORLD.operator
A, B, STRANGER = Key("account"), Key("account"), Key("account")
OTHER_OPERATOR, SIGNING = Key("operator"), Key("operator")
ALICE, BOB = Key("user"), Key("user")
UPDATE, LIST, DELETE, PACK = (f"$SYS.REQ.CLAIMS.{name}" for name in "UPDATE LIST DELETE PACK".split())
CLOSED = "closed"


def config(more: str = "allow_delete: true", kind: str = "full", **nats: Any) -> str:
    operator = operator_token(OPERATOR, system_account=WORLD.system.public, **nats)
    return (
        f'operator: {operator}\nresolver {{ type: {kind}, dir: "<<store>>/jwt", {more} }}\n'
        f"resolver_preload {{ {WORLD.system.public}: {WORLD.preload[WORLD.system.public]} }}\n"
    )


def of_a(issued_at: int = NOW, **given: Any) -> str:
    return account_token(OPERATOR, A, "A", issued_at=issued_at, **given)


def asked(admin: TokenClient, subject: str, text: str = "") -> Any:
    """Return the answer to a request, without its field `server`."""
    answer = json.loads(admin.request(subject.encode(), text.encode()))
    answer.pop("server")
    return answer


def is_in(server: ServerProcess, signer: Key = A, **given: Any) -> bool:
    key = given.pop("key", ALICE)
    return attempt(server.port, user_token(signer, key, **given), key)[-1] == "PONG"


def client(server: ServerProcess, signer: Key = A, **given: Any) -> TokenClient:
    return TokenClient(server.port, user_token(signer, ALICE, "alice", **given), ALICE)


def deletion(*names: str, signer: Key = OPERATOR, subject: str = "") -> str:
    return token(signer, "generic", subject or signer.public, nats={"accounts": [*names]})


REQUESTS: dict[str, tuple[str, str]] = {
    "a new account": (UPDATE, of_a()),
    "nothing": (UPDATE, ""),
    "no token": (UPDATE, "abc"),
    "a token of a user": (UPDATE, user_token(A, ALICE)),
    "by another operator": (UPDATE, account_token(OTHER_OPERATOR, A, "A")),
    "by itself": (UPDATE, account_token(A, A, "A")),
    "invalid": (
        UPDATE,
        of_a(signing_keys=["abc"], limits={"exports": 0}, exports=[{"subject": "a", "type": "stream"}]),
    ),
    "expired": (UPDATE, of_a(claims={"exp": NOW - 10})),
    "of its name": (f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE", of_a()),
    "of its name, in the old form": (f"$SYS.ACCOUNT.{A.public}.CLAIMS.UPDATE", of_a()),
    "of another name": (f"$SYS.REQ.ACCOUNT.{B.public}.CLAIMS.UPDATE", of_a()),
    "of no token by name": (f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE", "abc"),
    "of an invalid one by name": (f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE", of_a(signing_keys=["abc"])),
    "the list": (LIST, ""),
    "removal of an unknown account": (DELETE, deletion(B.public)),
    "removal of what is no account": (DELETE, deletion("abc")),
    "removal of nothing": (DELETE, deletion()),
    "removal without accounts": (DELETE, token(OPERATOR, "generic", OPERATOR.public)),
    "removal of the system account": (DELETE, deletion(WORLD.system.public)),
    "removal by another operator": (DELETE, deletion(A.public, signer=OTHER_OPERATOR)),
    "removal signed by another": (DELETE, deletion(A.public, signer=OTHER_OPERATOR, subject=OPERATOR.public)),
    "removal by a signing key": (DELETE, deletion(A.public, signer=SIGNING)),
    "removal that is no token": (DELETE, "abc"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answers of both servers to all requests, in their order."""

    def look(server: ServerProcess) -> dict[str, Any]:
        admin = WORLD.admin_client(server.port)
        return {name: asked(admin, *request) for name, request in REQUESTS.items()}

    made = config(signing_keys=[SIGNING.public])
    return of_both(tmp_path_factory.mktemp("requests"), made, look)


@pytest.mark.parametrize("name", list(REQUESTS))
def test_answers_to_requests(name: str, answers: Any) -> None:
    peer, ours = (each[name] for each in answers)
    assert ours == peer


def test_lookup_and_pack(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        asked(admin, UPDATE, of_a())
        found = [
            admin.request(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.LOOKUP".encode())
            for name in (A.public, B.public, WORLD.system.public)
        ]
        admin.send(b"PUB %b _INBOX.raw.pack 0\r\n\r\n" % PACK.encode())
        packed = []
        for subject, _, _, body in admin.frames():
            if subject == b"_INBOX.raw.pack":
                packed.append(body)
                if not body:
                    break
        return found, packed

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer
    assert ours[0][0] == of_a().encode()


@pytest.mark.parametrize("kind", ["full", "cache", "memory"])
def test_a_token_for_known_and_unknown_accounts(kind: str, tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        seen = []
        for name, text in (
            (A.public, of_a(NOW - 1)),
            (A.public, of_a()),
            (A.public, "abc"),
            (A.public, account_token(OPERATOR, B, "B")),
            (A.public, account_token(OTHER_OPERATOR, A, "A")),
            (WORLD.system.public, WORLD.preload[WORLD.system.public]),
            (WORLD.system.public, ""),
        ):
            seen.append(asked(admin, f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE", text))
            seen.append(is_in(server))
        return seen

    made = WORLD.config() if kind == "memory" else config("", kind)
    peer, ours = of_both(tmp_path, made, look)
    assert ours == peer


def test_a_user_of_a_pushed_account(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        before = is_in(server)
        asked(admin, UPDATE, of_a())
        return before, is_in(server), sorted(path.name for path in (tmp_path.rglob("*.jwt")))[-1:]

    peer, ours = of_both(tmp_path, config(), look)
    assert ours[:2] == peer[:2] == (False, True)


def test_a_system_account_without_a_token(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        stranger = attempt(server.port, user_token(STRANGER, BOB), BOB)[-1]
        pushed = asked(admin, UPDATE, WORLD.preload[WORLD.system.public])
        return stranger, pushed, asked(admin, LIST)

    made = config().split("resolver_preload")[0]
    peer, ours = of_both(tmp_path, made, look)
    assert ours == peer


def test_removal_closes_clients_and_locks_the_account(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        asked(admin, UPDATE, of_a())
        member = client(server)
        removed = asked(admin, DELETE, deletion(A.public))
        return removed, member.until_closed(), is_in(server), asked(admin, LIST)

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer


def test_removal_without_permission(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        return asked(WORLD.admin_client(server.port), DELETE, deletion(A.public))

    peer, ours = of_both(tmp_path, config(""), look)
    assert ours == peer


def test_a_full_directory(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        return asked(admin, UPDATE, of_a()), asked(admin, UPDATE, account_token(OPERATOR, B))

    peer, ours = of_both(tmp_path, config("limit: 2"), look)
    assert ours == peer


def test_an_operator_that_signs_with_signing_keys_only(tmp_path: Path) -> None:
    system = account_token(SIGNING, WORLD.system, "SYS")

    def look(server: ServerProcess) -> Any:
        admin = TokenClient(
            server.port, user_token(helper, WORLD.admin, issuer_account=WORLD.system.public), WORLD.admin
        )
        return (
            asked(admin, UPDATE, of_a()),
            asked(admin, UPDATE, account_token(SIGNING, A, signing_keys=[helper.public])),
            is_in(server),
            is_in(server, helper, issuer_account=A.public),
        )

    helper = Key("account")
    system = account_token(SIGNING, WORLD.system, "SYS", signing_keys=[helper.public])
    made = config(signing_keys=[SIGNING.public], strict_signing_key_usage=True)
    made = made.replace(WORLD.preload[WORLD.system.public], system)
    peer, ours = of_both(tmp_path, made, look)
    assert ours == peer


# Tokens that change what connected clients may do

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # the account before and after the update, and the user
    "its user is revoked": ({}, {"revocations": {ALICE.public: NOW + 60}}, {}),
    "everybody is revoked": ({}, {"revocations": {"*": NOW + 60}}, {}),
    "older tokens are revoked": ({}, {"revocations": {"*": NOW - 60}}, {}),
    "no bearers any more": ({}, {"limits": {"disallow_bearer": True}}, {"bearer_token": True}),
    "no connections": ({}, {"limits": {"conn": 0}}, {}),
    "one connection": ({}, {"limits": {"conn": 1}}, {}),
    "fewer subscriptions": ({}, {"limits": {"subs": 2}}, {}),
    "as many subscriptions": ({}, {"limits": {"subs": 3}}, {}),
    "enough subscriptions": ({}, {"limits": {"subs": 4}}, {}),
    "smaller payloads": ({}, {"limits": {"payload": 2}}, {}),
    "default permissions": (
        {},
        {"default_permissions": {"pub": {"deny": ["a"]}, "sub": {"deny": ["b"]}}},
        {},
    ),
    "default permissions for others": (
        {},
        {"default_permissions": {"pub": {"deny": ["a"]}}},
        {"pub": {"allow": ["a", "_INBOX.>"]}},
    ),
    "no default permissions": ({"default_permissions": {"pub": {"deny": ["a"]}}}, {}, {}),
    "another name": ({}, {"tags": ["x"]}, {}),
    "expired at once": ({}, {"claims": {"exp": NOW - 5}}, {}),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_new_token_reaches_connected_clients(name: str, tmp_path: Path) -> None:
    before, after, user = CHANGES[name]

    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        asked(admin, UPDATE, of_a(NOW - 2, **before))
        member = client(server, issued_at=NOW - 30, **user)
        member.send(b"SUB b 2\r\nSUB c 3\r\n")
        member.fence()
        asked(admin, UPDATE, of_a(NOW - 1, **after))
        asked(admin, LIST)
        # nats-server closes them some milliseconds later
        if name in ("fewer subscriptions", "as many subscriptions"):
            return member.until_closed()
        try:
            member.send(b"PUB a 3\r\nabc\r\nPUB b 1\r\nx\r\nPING\r\n")
            said: list[str] = member.read_until(b"PONG\r\n").decode().split("\r\n")
        except (ConnectionError, OSError):
            said = [CLOSED]
        said += [line for line in _rest(member) if line.startswith("-ERR")]
        return said, is_in(server, issued_at=NOW - 30, **user)

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer


def _rest(member: TokenClient) -> list[str]:
    return [line for line in member._data[member._at :].decode().split("\r\n") if line]


def test_keys_that_may_not_sign_any_more(tmp_path: Path) -> None:
    signing, role = Key("account"), Key("account")
    scope = {
        "kind": "user_scope",
        "key": role.public,
        "role": "r",
        "template": {"subs": -1, "data": -1, "payload": -1},
    }
    changed = {**scope, "template": {**scope["template"], "pub": {"deny": ["x"]}}}  # type: ignore[dict-item]

    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        asked(admin, UPDATE, of_a(NOW - 2, signing_keys=[signing.public, scope]))
        members = [
            client(server),
            client(server, signing, issuer_account=A.public),
            client(server, role, issuer_account=A.public, scoped=True),
        ]
        for each in members:
            each.fence()
        asked(admin, UPDATE, of_a(NOW - 1, signing_keys=[changed]))
        members[0].fence()
        return [each.until_closed() for each in members[1:]]

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer


def test_tokens_that_expire(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        now = int(time.time())
        asked(admin, UPDATE, of_a(now))
        user = client(server, claims={"exp": now + 2})
        ended = user.until_closed()
        asked(admin, UPDATE, of_a(now + 1, claims={"exp": int(time.time()) + 2}))
        return ended, client(server).until_closed(), is_in(server)

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer
    assert ours[0][-1] == "-ERR 'User Authentication Expired'"


def test_pages_of_operator_mode(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        admin = WORLD.admin_client(server.port)
        asked(admin, UPDATE, of_a(tags=["x:y"], revocations={BOB.public: 5}))
        member = client(server, tags=["t:u"])
        member.fence()
        account = asked(admin, "$SYS.REQ.SERVER.PING.ACCOUNTZ", json.dumps({"account": A.public}))["data"]
        detail = account["account_detail"]
        for name in (
            "update_time",
            "subscriptions",
            "sublist_stats",
            "exports",
            "imports",
            "jetstream_enabled",
        ):
            detail.pop(name, None)
        varz = asked(admin, "$SYS.REQ.SERVER.PING.VARZ")["data"]
        wanted = ("trusted_operators_jwt", "trusted_operators_claim", "system_account", "auth_required")
        connz = asked(admin, "$SYS.REQ.SERVER.PING.CONNZ", json.dumps({"auth": True, "acc": A.public}))[
            "data"
        ]
        shown = [
            {
                name: each.get(name)
                for name in ("authorized_user", "account", "jwt", "issuer_key", "name_tag", "tags")
            }
            for each in connz["connections"]
        ]
        info = asked(member, "$SYS.REQ.USER.INFO")
        return account, {name: varz.get(name) for name in wanted}, shown, info

    peer, ours = of_both(tmp_path, config(), look)
    for theirs in (peer, ours):
        detail = theirs[0]["account_detail"]
        theirs[0].pop("now")
        theirs[0].pop("server_id")
        detail.get("decoded_jwt", {}).get("nats", {}).pop("limits", None)
        for each in theirs[2]:
            each.pop("jwt")
    assert ours == peer
