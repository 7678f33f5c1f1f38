"""Requests to the callout service, which decides about clients, on a node with a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.callout_service import SUBJECT, Asked

from pyjs.base.rng import SeededRng
from pyjs.core.auth.permissions import Permissions
from pyjs.core.auth.users import User
from pyjs.core.trust.callouts import ANSWER_SIZE_MAX, ASK_WORK, XKEY_HEADER, Callouts
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, user_token
from pyjs.wire.xkeys import CurveKeyPair

INPUT_WORK = 65536  # limit of a turn, see core/sink.pyx
ISSUER, OTHER = Key("account", b"i" * 32), Key("account", b"j" * 32)
XKEY = CurveKeyPair(b"x" * 32)
CONFIG = """
max_payload: 4MB
accounts {
    AUTH { users: [{user: auth, password: a}, {user: plain, password: p}] }
    APP { users: [{user: app, password: p}] }
}
authorization { timeout: 2, auth_callout { issuer: %s, account: AUTH, auth_users: [auth], %s } }
"""
JOE = {"user": "joe", "pass": "hunter2", "verbose": False}


class Scene:
    """A node with a service; `ask` returns a waiting client, and the request about it."""

    def __init__(self, path: Path, more: str = "", config: str = CONFIG) -> None:
        path.write_text(config % (ISSUER.public, more))
        self.node = VirtualNode(path)
        self.node.log.debug_on = True
        self.service = self.node.client(b'{"verbose":false,"headers":true,"user":"auth","pass":"a"}')
        self.service.send(b"SUB %b 1\r\n" % SUBJECT)

    @property
    def callouts(self) -> Callouts:
        found = self.node.node.callouts
        assert found is not None
        return found

    def ask(self, **said: Any) -> tuple[RawClient, Asked, bytes]:
        client = self.node.client(None)
        client.send(b"CONNECT %b\r\n" % json.dumps(JOE | said).encode())
        (frame,) = self.service.frames()
        return client, Asked(frame.payload.decode(), frame.headers), frame.reply

    def answer(self, reply: bytes, payload: bytes) -> None:
        self.service.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(payload), payload))

    def warnings(self) -> list[str]:
        return [text for level, text in self.node.log.lines if level in ("WRN", "DBG")]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "server.conf")
    with made.node:
        yield made


def joe(asked: Asked, signer: Key = ISSUER, **given: Any) -> str:
    return asked.user_token(signer, **{"name": "joe", "audience": "APP", **given})


def test_the_client_waits_for_the_answer_and_enters_the_account_that_it_names(scene: Scene) -> None:
    client, asked, reply = scene.ask()
    assert client.take() == b""
    client.send(b"PING\r\n")
    assert client.take() == b""
    scene.answer(reply, asked.answer(ISSUER, joe(asked, pub={"allow": ["a"]})))
    assert b"PONG" in client.take()
    assert client.session.account.name == "APP"
    client.send(b"PUB b 0\r\n\r\n")
    assert b"Permissions Violation" in client.take()


def test_a_request_says_what_the_client_said_and_for_which_key_the_answer_is(scene: Scene) -> None:
    _, asked, _ = scene.ask(name="shop", lang="C")
    assert asked.nats["connect_opts"] == {
        "user": "joe",
        "pass": "hunter2",
        "name": "shop",
        "lang": "C",
        "protocol": 0,
    }
    assert (asked.claims["aud"], asked.claims["sub"]) == ("nats-authorization-request", ISSUER.public)
    assert asked.user.startswith("U")
    assert asked.nats["client_info"]["host"] == "127.0.0.1"
    assert asked.claims["exp"] - asked.claims["iat"] == 2


def test_each_request_has_a_key_of_its_own(scene: Scene) -> None:
    assert len({scene.ask()[1].user for _ in range(5)}) == 5


def test_the_name_in_the_answer_replaces_what_the_client_said(scene: Scene) -> None:
    client, asked, reply = scene.ask(auth_token="secret")
    scene.answer(reply, asked.answer(ISSUER, joe(asked, name="judith")))
    assert (client.session.options.user, client.session.options.auth_token) == ("judith", "")
    assert client.session.user.name == "judith"


WRONG = {
    "nothing": (lambda asked: b"", 'Auth callout violation: "no reason supplied" on account "AUTH"'),
    "no token": (lambda asked: b"abc", "Expected 3 chunks"),
    "too much": (
        lambda asked: b"x" * (ANSWER_SIZE_MAX + 1),
        "Auth callout violation: the response is too large",
    ),
    "an error": (
        lambda asked: asked.answer(ISSUER, error="no"),
        "Auth callout service returned an error: no",
    ),
    "a long error": (
        lambda asked: asked.answer(ISSUER, error="x" * 1000),
        "Auth callout service returned an error: " + "x" * 256,
    ),
    "neither": (
        lambda asked: asked.answer(ISSUER),
        "Authorization response had validation errors: Error or Jwt is required",
    ),
    "about another client": (
        lambda asked: asked.answer(ISSUER, joe(asked), subject=Key("user").public),
        "Auth callout violation: auth callout response is not for expected user",
    ),
    "for another server": (
        lambda asked: asked.answer(ISSUER, joe(asked), aud=Key("server").public),
        "Auth callout violation: auth callout response is not for server",
    ),
    "another user": (
        lambda asked: asked.answer(ISSUER, user_token(ISSUER, Key("user", b"q" * 32), claims={"aud": "APP"})),
        "Expected authorized user of ",
    ),
    "a user of another issuer": (
        lambda asked: asked.answer(ISSUER, joe(asked, OTHER)),
        'Wrong issuer for auth callout response on account "AUTH", expected ',
    ),
    "an issuer account": (
        lambda asked: asked.answer(ISSUER, joe(asked, issuer_account=OTHER.public)),
        'Error non operator mode account "AUTH": attempted to use issuer_account',
    ),
    "an unknown account": (
        lambda asked: asked.answer(ISSUER, joe(asked, audience="NOWHERE")),
        'No valid account "NOWHERE" for auth callout response on account "AUTH": account missing',
    ),
    "a claim of the wrong type": (
        lambda asked: asked.answer(ISSUER, joe(asked, subs="many")),
        "Json: cannot unmarshal string into Go struct field subs of type int64",
    ),
    "unknown connections": (
        lambda asked: asked.answer(ISSUER, joe(asked, allowed_connection_types=["SMOKE"])),
        'Authorized user on account "APP" using invalid connection type',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_not_for_this_client_lets_nobody_in(scene: Scene, name: str) -> None:
    answer, told = WRONG[name]
    client, asked, reply = scene.ask()
    scene.answer(reply, answer(asked))
    assert client.take() == b"-ERR 'Authorization Violation'\r\n"
    assert client.link.closed
    assert [text for text in scene.warnings() if text.startswith(told)], scene.warnings()
    assert "hunter2" not in str(scene.node.log.lines)


def test_only_the_first_answer_counts(scene: Scene) -> None:
    client, asked, reply = scene.ask()
    scene.answer(reply, b"")
    scene.answer(reply, asked.answer(ISSUER, joe(asked)))
    assert client.link.closed
    assert not client.session.connected


def test_a_client_does_not_wait_longer_than_its_login_may_take(scene: Scene) -> None:
    client, asked, reply = scene.ask()
    scene.node.advance(milliseconds=1900)
    assert client.take() == b""
    scene.node.advance(milliseconds=200)
    assert client.session.closed_reason == "Authentication Timeout"
    scene.answer(reply, asked.answer(ISSUER, joe(asked)))
    assert not client.session.connected


def test_a_client_that_logs_in_again_is_closed_if_the_answer_does_not_come(scene: Scene) -> None:
    client, asked, reply = scene.ask()
    scene.answer(reply, asked.answer(ISSUER, joe(asked)))
    client.take()
    client.send(b"CONNECT %b\r\nPING\r\n" % json.dumps(JOE).encode())
    scene.node.advance(milliseconds=1900)
    assert client.take() == b""
    scene.node.advance(milliseconds=200)
    assert client.take() == b"-ERR 'Authorization Violation'\r\n"
    assert 'Authorization callout response not received in time on account "AUTH"' in scene.warnings()


def test_a_client_that_has_left_does_not_stay_when_its_answer_comes(scene: Scene) -> None:
    before = len(scene.node.node.accounts["AUTH"].subs)
    client, asked, reply = scene.ask()
    assert len(scene.node.node.accounts["AUTH"].subs) == before + 1
    client.session.connection_lost()
    scene.answer(reply, asked.answer(ISSUER, joe(asked)))
    assert len(scene.node.node.accounts["AUTH"].subs) == before
    assert not scene.node.node.faults.counts
    assert [*scene.node.node.sessions.values()] == [scene.service.session]


def test_the_work_of_a_request_counts_as_input_of_the_turn(scene: Scene) -> None:
    strangers = [scene.node.client(None) for _ in range(100)]
    for stranger in strangers:
        stranger.session.receive_data(b'CONNECT {"user":"u","pass":"x"}\r\n')
    asked = []
    while sum(asked) < 100:
        scene.node.node.turn(scene.node.clock.now_ns())
        asked.append(len(scene.service.frames()))
    # requests read before the turn, and those read in it
    assert max(asked) <= 2 * (INPUT_WORK // ASK_WORK + 1)
    assert min(asked) > 0


# -- encryption --------------------------------------------------------------------------------------------------
@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "server.conf", f"xkey: {XKEY.public}")
    with made.node:
        yield made


def opened(scene: Scene) -> tuple[RawClient, Asked, bytes, str]:
    client = scene.node.client(None)
    client.send(b"CONNECT %b\r\n" % json.dumps(JOE).encode())
    (frame,) = scene.service.frames()
    server = frame.headers.decode().split(f"{XKEY_HEADER}: ")[1].split("\r\n")[0]
    return client, Asked(XKEY.open(frame.payload, server).decode(), b""), frame.reply, server


def test_with_an_xkey_only_the_service_reads_the_password(sealed: Scene) -> None:
    _, asked, _, server = opened(sealed)
    assert asked.nats["connect_opts"]["pass"] == "hunter2"
    assert asked.nats["server_id"]["xkey"] == server == sealed.callouts.xkey.public


@pytest.mark.parametrize("encrypts", [True, False])
def test_an_answer_may_be_encrypted(sealed: Scene, encrypts: bool) -> None:
    client, asked, reply, server = opened(sealed)
    answer = asked.answer(ISSUER, joe(asked))
    sealed.answer(reply, XKEY.seal(answer, server, SeededRng(7)) if encrypts else answer)
    assert client.session.connected


def test_an_answer_sealed_with_another_key_is_refused(sealed: Scene) -> None:
    client, asked, reply, server = opened(sealed)
    sealed.answer(reply, CurveKeyPair(b"y" * 32).seal(asked.answer(ISSUER, joe(asked)), server, SeededRng(7)))
    assert client.link.closed
    assert [text for text in sealed.warnings() if text.startswith("Error decrypting auth callout response")]


# -- who is asked ------------------------------------------------------------------------------------------------
def said(scene: Scene, **fields: str) -> Any:
    session = scene.node.client(None).session
    session.options = replace(session.options, **fields)
    return session


def test_the_service_is_asked_about_everybody_but_its_own_users(scene: Scene) -> None:
    session = said(scene)
    assert scene.callouts.rules_for(session, None) is not None
    assert scene.callouts.rules_for(session, User("app", "", "APP")) is not None
    assert scene.callouts.rules_for(session, User("auth", "", "AUTH")) is None


def test_the_name_of_a_user_of_the_service_does_not_spare_another_user(scene: Scene) -> None:
    assert scene.callouts.rules_for(said(scene, user="auth"), User("app", "", "APP")) is not None


def test_with_allowed_accounts_it_is_asked_about_their_users_and_strangers(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "server.conf", "allowed_accounts: [APP]")
    with scene.node:
        session = said(scene)
        about = {
            account: scene.callouts.rules_for(session, User("x", "", account)) for account in ("APP", "AUTH")
        }
        assert about["APP"] is not None
        assert about["AUTH"] is None
        assert scene.callouts.rules_for(session, None) is not None


def test_without_the_account_of_the_service_nobody_enters(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "server.conf")
    with scene.node:
        del scene.node.node.accounts["AUTH"]
        client = scene.node.client(json.dumps(JOE).encode())
        assert client.link.closed
        told = 'No valid account "AUTH" for auth callout request: account missing'
        assert ("WRN", told) in scene.node.log.lines


def test_users_of_the_account_of_the_service_may_not_ask_it_themselves(scene: Scene) -> None:
    guarded = scene.callouts.guarded(User("plain", "", "AUTH", Permissions()))
    assert guarded.permissions is not None
    assert not guarded.permissions.may_publish(SUBJECT)
    assert guarded.permissions.may_publish(b"other")
    app = User("app", "", "APP")
    assert scene.callouts.guarded(app) is app


# -- with operators ----------------------------------------------------------------------------------------------
OPERATOR, SERVICE, APP = Key("operator", b"o" * 32), Key("account", b"s" * 32), Key("account", b"p" * 32)
AUTH_USER, USER = Key("user", b"a" * 32), Key("user", b"u" * 32)


class OperatorScene(Scene):
    """The same, with the service chosen by the token of the account."""

    def __init__(self, **external: Any) -> None:
        claims = {"auth_users": [AUTH_USER.public], **external}
        preload = {
            SERVICE.public: account_token(OPERATOR, SERVICE, "S", issued_at=1, authorization=claims),
            APP.public: account_token(OPERATOR, APP, "APP", issued_at=1),
        }
        self.node = VirtualNode(trusted_keys=OPERATOR.public, resolver="MEMORY", resolver_preload=preload)
        self.node.log.debug_on = True
        own = user_token(SERVICE, AUTH_USER, issued_at=1, bearer_token=True)
        self.service = self.node.client(json.dumps({"jwt": own, "headers": True, "verbose": False}).encode())
        self.service.send(b"SUB %b 1\r\n" % SUBJECT)

    def ask(self, **said: Any) -> tuple[RawClient, Asked, bytes]:
        return super().ask(jwt=user_token(SERVICE, USER, issued_at=1, bearer_token=True), **said)


@pytest.mark.parametrize(
    ("allowed", "target", "enters"),
    [([], SERVICE, True), ([], APP, False), ([APP.public], APP, True), (["*"], APP, True)],
)
def test_the_service_of_an_account_lets_into_the_accounts_that_its_token_allows(
    allowed: list[str], target: Key, enters: bool
) -> None:
    scene = OperatorScene(allowed_accounts=allowed)
    with scene.node:
        client, asked, reply = scene.ask()
        made = asked.user_token(target, "joe")
        scene.answer(reply, asked.answer(SERVICE, made))
        assert client.session.connected is enters
        if enters:
            assert client.session.account.name == target.public
        else:
            assert [text for text in scene.warnings() if "not permitted as valid account option" in text]


def test_an_answer_signed_by_a_key_that_the_account_does_not_know_is_refused() -> None:
    scene = OperatorScene()
    with scene.node:
        client, asked, reply = scene.ask()
        scene.answer(reply, asked.answer(OTHER, asked.user_token(SERVICE, "joe")))
        assert client.link.closed
        assert "Auth callout signing key is unknown" in scene.warnings()


def test_the_own_user_of_the_service_is_not_asked_about() -> None:
    scene = OperatorScene()
    with scene.node:
        assert scene.service.session.connected
        assert scene.service.frames() == []
