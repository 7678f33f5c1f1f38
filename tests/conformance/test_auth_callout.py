"""Our server asks an auth callout service about clients as nats-server does, and treats its answers the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.callout_service import Asked, CalloutService, Decide
from tests.support.jwt_clients import TokenClient, World, attempt
from tests.support.raw import RawClient

from pyjs.testing.jwt import Key, account_token, token, user_token
from pyjs.wire.xkeys import CurveKeyPair

pytestmark = needs_peer
ISSUER, OTHER = Key("account"), Key("account")
SERVICE_XKEY, OTHER_XKEY = CurveKeyPair(b"x" * 32), CurveKeyPair(b"y" * 32)
AUTH = b'CONNECT {"user":"auth","pass":"auth","verbose":false,"headers":true,"protocol":1}\r\n'


def config(more: str = "", extra: str = "") -> str:
    return f"""
accounts {{
    AUTH {{ users: [{{user: auth, password: auth}}, {{user: plain, password: plain}}] }}
    APP {{ users: [{{user: app, password: app}}] }}
    SYS {{ users: [{{user: sys, password: sys}}] }}
}}
system_account: SYS
authorization {{
    timeout: 2
    auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth], {more} }}
}}
{extra}
"""


def allow(asked: Asked, **given: Any) -> bytes:
    given = {"audience": "APP", "name": "joe", **given}
    return asked.answer(ISSUER, asked.user_token(ISSUER, **given))


DECISIONS: dict[str, Decide] = {
    "let in": allow,
    "without a name": lambda asked: allow(asked, name=""),
    "with permissions": lambda asked: allow(asked, pub={"allow": ["a"]}),
    "with limits": lambda asked: allow(asked, payload=1),
    "into the account of the service": lambda asked: allow(asked, audience="AUTH"),
    "into an unknown account": lambda asked: allow(asked, audience="NOWHERE"),
    "into no account": lambda asked: allow(asked, audience=""),
    "an error": lambda asked: asked.answer(ISSUER, error="no"),
    "nothing": lambda asked: b"",
    "no token": lambda asked: b"abc",
    "both": lambda asked: asked.answer(ISSUER, asked.user_token(ISSUER, audience="APP"), "no"),
    "neither": lambda asked: asked.answer(ISSUER),
    "for another user": lambda asked: asked.answer(
        ISSUER, asked.user_token(ISSUER, audience="APP"), subject=Key("user").public
    ),
    "for another server": lambda asked: asked.answer(
        ISSUER, asked.user_token(ISSUER, audience="APP"), aud=Key("server").public
    ),
    "of another user": lambda asked: asked.answer(
        ISSUER, token(ISSUER, "user", Key("user").public, "joe", aud="APP")
    ),
    "by another issuer": lambda asked: asked.answer(OTHER, asked.user_token(OTHER, audience="APP")),
    "a user by another issuer": lambda asked: asked.answer(ISSUER, asked.user_token(OTHER, audience="APP")),
    "with an issuer account": lambda asked: allow(asked, issuer_account=OTHER.public),
    "from elsewhere": lambda asked: allow(asked, src=["10.0.0.0/8"]),
    "at no time": lambda asked: allow(asked, times=[{"start": "25:00:00", "end": "26:00:00"}]),
    "by another connection": lambda asked: allow(asked, allowed_connection_types=["WEBSOCKET"]),
    "by an unknown connection": lambda asked: allow(asked, allowed_connection_types=["SMOKE"]),
    "expired": lambda asked: asked.answer(
        ISSUER, token(ISSUER, "user", asked.user, "joe", {"subs": -1}, aud="APP", exp=5)
    ),
    "a user token as the answer": lambda asked: asked.user_token(ISSUER, audience="APP").encode(),
}
JOE: dict[str, Any] = {"user": "u", "pass": "hunter2"}
TRIED = b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\nPUB $SYS.REQ.USER.AUTH 1\r\nx\r\n"
CLIENTS: dict[str, dict[str, Any]] = {
    "nobody": {},
    "a password": {"user": "joe", "pass": "secret"},
    "a token": {"auth_token": "secret"},
    "a user of the file": {"user": "app", "pass": "app"},
    "a user of the file, wrongly": {"user": "app", "pass": "no"},
    "another user of the account": {"user": "plain", "pass": "plain"},
    "the service": {"user": "auth", "pass": "auth"},
    "the service, wrongly": {"user": "auth", "pass": "no"},
    "the system": {"user": "sys", "pass": "sys"},
}


def service(server: ServerProcess, decide: Decide, **given: Any) -> CalloutService:
    return CalloutService(RawClient(server.port, connect=AUTH), decide, **given)


def seen(asked: Asked) -> dict[str, Any]:
    """Return a request without the values that differ between servers."""
    claims = json.loads(json.dumps(asked.claims))
    for name in ("iss", "iat", "jti", "exp"):
        assert claims.pop(name)
    server = claims["nats"]["server_id"]
    assert server["id"] == asked.claims["iss"]
    server["xkey"] = bool(server.get("xkey"))
    del server["id"]
    assert claims["nats"].pop("user_nkey")
    assert claims["nats"]["client_info"].pop("id")
    return dict(claims)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answers of both servers to a client, for each decision."""

    def look(server: ServerProcess) -> dict[str, Any]:
        said = {}
        for name, decide in DECISIONS.items():
            asked = service(server, decide)
            said[name] = attempt(server.port, **JOE, more=TRIED)
            asked.close()
        return said

    return of_both(tmp_path_factory.mktemp("decided"), config(), look)


@pytest.mark.parametrize("name", list(DECISIONS))
def test_what_the_service_decides(name: str, decided: Any) -> None:
    peer, ours = (each[name] for each in decided)
    assert ours == peer


@pytest.mark.parametrize("allowed", ["", "allowed_accounts: [APP]", "allowed_accounts: [AUTH]"])
def test_who_is_asked_about(allowed: str, tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        said = {}
        for name, connect in CLIENTS.items():
            asked = service(server, allow)
            said[name] = (attempt(server.port, **connect), [seen(each) for each in asked.requests])
            asked.close()
        return said

    peer, ours = of_both(tmp_path, config(allowed), look)
    assert ours == peer


@pytest.mark.parametrize("encrypts", [True, False])
def test_encryption(encrypts: bool, tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asked = service(server, allow, xkey=SERVICE_XKEY, encrypts=encrypts)
        said = attempt(server.port, **JOE)
        found = [seen(each) for each in asked.requests]
        asked.close()
        return said, found

    peer, ours = of_both(tmp_path, config(f"xkey: {SERVICE_XKEY.public}"), look)
    assert ours == peer
    assert ours[0][-1] == "PONG"


def test_an_answer_that_cannot_be_decrypted(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asked = service(server, lambda asked: b"xkv1" + b"0" * 60, xkey=SERVICE_XKEY, encrypts=False)
        said = attempt(server.port, **JOE)
        asked.close()
        return said, server.logged("rror decrypting auth callout response on account", 5)

    peer, ours = of_both(tmp_path, config(f"xkey: {SERVICE_XKEY.public}"), look)
    assert ours == peer


def test_no_service(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        return attempt(server.port, **JOE)

    peer, ours = of_both(tmp_path, config().replace("timeout: 2", "timeout: 1"), look)
    assert ours[-1] == peer[-1] == ""
    assert ours[2].startswith("-ERR 'Auth")
    assert peer[2].startswith("-ERR 'Auth")


def test_secrets_are_not_logged(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asked = service(server, lambda asked: asked.answer(ISSUER, error="no"))
        attempt(server.port, **JOE)
        asked.close()
        return server.logged("hunter2", 0), server.logged("eyJ", 0)

    _, ours = of_both(tmp_path, config("", "debug: true"), look)
    assert ours == (False, False)


def reloaded(server: ServerProcess, old: str = "", new: str = "") -> None:
    """Reload the configuration with `new` in place of `old`; return once the reload is done."""
    path = server.config_path
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    server.signal("HUP")
    assert server.logged("Reloaded server configuration", 5)


@pytest.mark.parametrize(("old", "new"), [("", ""), ("APP {", "OTHER {")])
def test_a_reload_closes_the_clients_that_the_service_decided_about(
    old: str, new: str, tmp_path: Path
) -> None:
    def look(server: ServerProcess) -> Any:
        asked = service(server, allow)
        connect = json.dumps({**JOE, "verbose": False}).encode()
        client = RawClient(server.port, connect=b"CONNECT %b\r\n" % connect)
        client.fence()
        reloaded(server, old, new)
        with pytest.raises(ConnectionError, match="the server closed the connection"):
            client.read_until(b"-ERR")
        asked.close()
        admin = RawClient(server.port, connect=AUTH.replace(b"auth", b"sys"))
        found = json.loads(admin.request(b"$SYS.REQ.SERVER.PING.CONNZ", b'{"state":1}'))
        return [each["reason"] for each in found["data"]["connections"]][:1]

    peer, ours = of_both(tmp_path, config().replace("[auth]", "[auth, sys]"), look)
    assert ours == peer == ["Client Closed"]


def test_a_reload_does_not_let_users_ask_the_service_themselves(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        plain = RawClient(server.port, connect=AUTH)
        plain.fence()
        reloaded(server)
        plain.send(b"PUB $SYS.REQ.USER.AUTH 1\r\nx\r\nPING\r\n")
        return plain.read_until(b"PONG\r\n").decode().splitlines()[-1]

    peer, ours = of_both(tmp_path, config(), look)
    assert ours == peer
    assert ours.startswith("-ERR 'Permissions Violation")


# With operators

WORLD = World()
DESK, APP, SEPARATE = Key("account"), Key("account"), Key("account")
DESK_USER, ALICE = Key("user"), Key("user")
ROLE = Key("account")
EXTERNAL = {"auth_users": [DESK_USER.public], "allowed_accounts": [APP.public]}
SCOPE = {
    "kind": "user_scope",
    "key": ROLE.public,
    "role": "r",
    "template": {"pub": {"allow": ["{{name()}}"]}, "subs": -1, "data": -1, "payload": -1},
}
WORLD.add(DESK, "DESK", authorization=EXTERNAL)
WORLD.add(APP, "APP", signing_keys=[SCOPE])
WORLD.add(SEPARATE, "SEPARATE")


def into(account: Key, signer: Key | None = None, **nats: Any) -> Decide:
    def decide(asked: Asked) -> bytes:
        own = {} if signer is None else {"issuer_account": account.public}
        if nats.get("scoped"):
            jwt = token(signer or account, "user", asked.user, "joe", own)
        else:
            jwt = asked.user_token(signer or account, "joe", **own, **nats)
        return asked.answer(DESK, jwt)

    return decide


TOKEN_DECISIONS: dict[str, Decide] = {
    "into its account": into(DESK),
    "into an allowed account": into(APP),
    "into another account": into(SEPARATE),
    "by a role": into(APP, ROLE, scoped=True),
    "by a role, with limits": into(APP, ROLE),
    "by an unknown key": into(APP, SEPARATE),
    "signed by another account": lambda asked: asked.answer(SEPARATE, asked.user_token(APP, "joe")),
    "an error": lambda asked: asked.answer(DESK, error="no"),
}


@pytest.fixture(scope="module")
def decided_with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def look(server: ServerProcess) -> dict[str, Any]:
        said = {}
        bearer = user_token(DESK, ALICE, "sentinel", bearer_token=True, pub={"deny": [">"]})
        for name, decide in TOKEN_DECISIONS.items():
            desk = TokenClient(server.port, user_token(DESK, DESK_USER, "desk"), DESK_USER)
            asked = CalloutService(desk, decide)
            lines = attempt(server.port, bearer, **JOE, more=b"PUB joe 1\r\nx\r\nPUB z 1\r\nx\r\n")
            requests = [seen(each) for each in asked.requests]
            for each in requests:
                each["nats"]["connect_opts"].pop("jwt")
            said[name] = lines, requests
            asked.close()
        return said

    return of_both(tmp_path_factory.mktemp("tokens"), WORLD.config(), look)


@pytest.mark.parametrize("name", list(TOKEN_DECISIONS))
def test_what_the_service_decides_with_operators(name: str, decided_with_tokens: Any) -> None:
    peer, ours = (each[name] for each in decided_with_tokens)
    assert ours == peer


def test_a_revoked_user_of_the_service_is_closed(tmp_path: Path) -> None:
    found: list[str] = []

    def decide(asked: Asked) -> bytes:
        found.append(asked.user)
        return into(APP)(asked)

    def look(server: ServerProcess) -> Any:
        desk = TokenClient(server.port, user_token(DESK, DESK_USER, "desk"), DESK_USER)
        asked = CalloutService(desk, decide)
        bearer = user_token(DESK, ALICE, "sentinel", bearer_token=True)
        member = TokenClient(server.port, bearer, None)
        member.fence()
        revoked = account_token(WORLD.operator, APP, "APP", revocations={"*": 1 << 40})
        answer = json.loads(
            WORLD.admin_client(server.port).request(
                f"$SYS.REQ.ACCOUNT.{APP.public}.CLAIMS.UPDATE".encode(), revoked.encode()
            )
        )
        lines = member.until_closed()
        asked.close()
        return answer["data"], lines

    peer, ours = of_both(tmp_path, WORLD.config(), look)
    assert ours == peer


@pytest.mark.parametrize("claimed", [{"user": DESK_USER.public}, {"nkey": DESK_USER.public}])
def test_the_name_of_a_service_user_does_not_spare_the_service(
    claimed: dict[str, Any], tmp_path: Path
) -> None:
    def look(server: ServerProcess) -> Any:
        desk = TokenClient(server.port, user_token(DESK, DESK_USER, "desk"), DESK_USER)
        asked = CalloutService(desk, into(APP))
        bearer = user_token(DESK, ALICE, "sentinel", bearer_token=True)
        said = attempt(server.port, bearer, **claimed)
        asked.close()
        return said, len(asked.requests)

    peer, ours = of_both(tmp_path, WORLD.config(), look)
    assert ours == peer
    assert ours[1] == 1


@pytest.mark.parametrize("change", ["removed", "not pinned"])
def test_a_reload_closes_the_clients_of_accounts_that_are_gone(change: str, tmp_path: Path) -> None:
    token_line = f"{SEPARATE.public}: {WORLD.preload[SEPARATE.public]}"
    pinned = f"resolver_pinned_accounts: [{APP.public}]"
    old, new = (
        (token_line, "") if change == "removed" else ("resolver: MEMORY", f"resolver: MEMORY\n{pinned}")
    )

    def look(server: ServerProcess) -> Any:
        bearer = user_token(SEPARATE, ALICE, "alice", bearer_token=True)
        client = TokenClient(server.port, bearer, None)
        client.fence()
        reloaded(server, old, new)
        return client.until_closed()[-1], attempt(server.port, bearer)

    peer, ours = of_both(tmp_path, WORLD.config(), look)
    assert ours == peer
