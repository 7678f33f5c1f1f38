"""Requests about the tokens of accounts, on a node with a directory and a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyjs.monitor.state import Monitored, ProcessStats
from pyjs.system_account.answers import Answers
from pyjs.system_account.claims import DELETIONS_MAX, STEP
from pyjs.system_account.requests import SystemRequests
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, operator_token, token, user_token

OPERATOR, SYSTEM, A, B = (
    Key(kind, bytes([at]) * 32) for at, kind in enumerate(["operator"] + ["account"] * 3)
)
ADMIN, USER, STRANGER = Key("user", b"d" * 32), Key("user", b"u" * 32), Key("operator", b"s" * 32)
START_S = 1_700_000_000  # the start of the virtual clock
UPDATE, DELETE = "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE"


def of_a(**given: Any) -> str:
    return account_token(OPERATOR, A, "A", issued_at=given.pop("issued_at", 5), **given)


class Desk(VirtualNode):
    """A server in operator mode; `admin` is a client of the system account."""

    def __init__(self, path: Path | None, kind: str = "full", **resolver: Any) -> None:
        system = account_token(OPERATOR, SYSTEM, "SYS", issued_at=1)
        given: Any = {"resolver": "MEMORY"}
        if path is not None:
            given = {"resolver": {"type": kind, "dir": str(path), **resolver}}
        super().__init__(
            operator=operator_token(OPERATOR, system_account=SYSTEM.public),
            resolver_preload={SYSTEM.public: system},
            **given,
        )
        self.log.debug_on = True
        self.path = path

    def __enter__(self) -> Desk:
        super().__enter__()
        self.requests = SystemRequests(self.node, self._answers, lambda then: then(""))
        self.requests.subscribe()
        self.admin = self.log_in(SYSTEM, ADMIN)
        return self

    def _answers(self) -> Answers:
        return Answers(Monitored(self.node, self.options, ProcessStats(), 0, True))

    def log_in(self, account: Key, user: Key = USER) -> RawClient:
        jwt = user_token(account, user, issued_at=1, bearer_token=True)
        return self.client(json.dumps({"jwt": jwt, "verbose": False, "headers": True}).encode())

    def ask(self, subject: str, body: str | bytes = b"") -> dict[str, Any]:
        """Send a request; return its answer without the server's description."""
        data = body.encode() if isinstance(body, str) else body
        found: dict[str, Any] = json.loads(self.admin.request(subject.encode(), data).payload)
        del found["server"]
        return found

    def all_of(self, subject: str, body: bytes = b"") -> list[bytes]:
        """Return all answers to one request."""
        self.admin.send(b"SUB all 9\r\nPUB %b all %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        return self.admin.payloads()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Desk(tmp_path, allow_delete=True) as made:
        yield made


def deletion(*names: Any, signer: Key = OPERATOR, **nats: Any) -> str:
    return token(signer, "generic", signer.public, "", {"accounts": [*names], **nats}, 5)


# -- updates -----------------------------------------------------------------------------------------------------
def test_a_pushed_account_is_stored_and_lets_its_users_in(desk: Desk) -> None:
    assert desk.log_in(A).link.closed
    answer = desk.ask(UPDATE, of_a())
    assert answer == {"data": {"account": A.public, "code": 200, "message": "jwt updated"}}
    assert desk.path is not None
    assert (desk.path / f"{A.public}.jwt").read_text() == of_a()
    assert not desk.log_in(A).link.closed


def test_the_same_token_again_changes_nothing(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    client = desk.log_in(A)
    assert desk.ask(UPDATE, of_a())["data"]["message"] == "jwt updated"
    assert not client.link.closed


def test_a_new_token_reaches_the_clients_of_its_account(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    client = desk.log_in(A)
    desk.ask(UPDATE, of_a(issued_at=9, revocations={USER.public: 8}))
    assert client.session.closed_reason == "Credentials Revoked"


REFUSED = {
    "nothing": ("", "n/a", "jwt update resulted in error - expected 3 chunks"),
    "no UTF-8": (b"\xff.\xff.\xff", "n/a", "jwt update resulted in error - "),
    "the token of a user": (
        user_token(A, USER, issued_at=5),
        "n/a",
        "jwt update resulted in error - not account claim",
    ),
    "an invalid account": (
        of_a(signing_keys=["abc"]),
        A.public,
        'jwt validation failed - validation errors: ["abc" is not a valid account signing key]',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_token_is_refused_and_not_stored(desk: Desk, name: str) -> None:
    body, account, text = REFUSED[name]
    error = desk.ask(UPDATE, body)["error"]
    assert (error["account"], error["code"]) == (account, 500)
    assert error["description"].startswith(text)
    assert desk.path is not None
    assert [path.name for path in desk.path.iterdir()] == [f"{SYSTEM.public}.jwt"]
    assert not desk.node.faults.counts


@pytest.mark.parametrize("subject", ["$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", "$SYS.ACCOUNT.{}.CLAIMS.UPDATE"])
def test_a_token_that_is_pushed_to_a_name_must_be_of_that_name(desk: Desk, subject: str) -> None:
    wrong = desk.ask(subject.format(B.public), of_a())["error"]["description"]
    assert wrong == "jwt update resulted in error - subject does not match jwt content"
    assert desk.ask(subject.format(A.public), of_a())["data"]["message"] == "jwt updated"


def test_a_directory_that_cannot_be_written_is_told(desk: Desk) -> None:
    assert desk.path is not None
    (desk.path / f"{A.public}.jwt.tmp").mkdir()
    assert desk.ask(UPDATE, of_a())["error"]["description"].startswith("jwt update resulted in error - open ")
    assert desk.log_in(A).link.closed


def test_a_full_directory_is_told(tmp_path: Path) -> None:
    with Desk(tmp_path, limit=1) as desk:
        assert desk.ask(UPDATE, of_a())["error"]["description"].endswith("jwt store is full")


def test_requests_are_done_in_their_order(desk: Desk) -> None:
    desk.hold_jobs = True
    newer = of_a(issued_at=9, description="newer")
    for text in (of_a(), newer):
        desk.admin.send(b"PUB %b 0 %d\r\n%b\r\n" % (UPDATE.encode(), len(text), text.encode()))
    desk.hold_jobs = False
    desk.turn()
    assert desk.all_of(f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.LOOKUP") == [newer.encode()]


# -- a cache, and no directory -----------------------------------------------------------------------------------
def test_a_cache_stores_the_tokens_of_known_accounts_only(tmp_path: Path) -> None:
    with Desk(tmp_path, "cache") as desk:
        told = desk.ask(UPDATE, of_a())["data"]
        assert told == {"account": A.public, "code": 200, "message": "jwt update cache skipped"}
        desk.log_in(SYSTEM)
        system = account_token(OPERATOR, SYSTEM, "SYS", issued_at=9)
        assert desk.ask(UPDATE, system)["data"]["message"] == "jwt updated cache"


def test_a_cache_does_not_answer_what_only_a_whole_directory_knows(tmp_path: Path) -> None:
    with Desk(tmp_path, "cache") as desk:
        assert desk.all_of("$SYS.REQ.CLAIMS.PACK") == []
        assert desk.all_of(f"$SYS.REQ.ACCOUNT.{SYSTEM.public}.CLAIMS.LOOKUP") == []
        assert len(desk.all_of("$SYS.REQ.CLAIMS.LIST")) == 1


def test_without_a_directory_a_token_of_a_known_account_is_applied_and_not_stored() -> None:
    with Desk(None) as desk:
        by_name = f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE"
        assert desk.ask(by_name, of_a())["data"]["message"] == "jwt update skipped"
        own = f"$SYS.REQ.ACCOUNT.{SYSTEM.public}.CLAIMS.UPDATE"
        system = account_token(OPERATOR, SYSTEM, "SYS", issued_at=9, revocations={ADMIN.public: 8})
        client = desk.log_in(SYSTEM, USER)
        admin = desk.admin
        admin.send(b"PUB %b %d\r\n%b\r\n" % (own.encode(), len(system), system.encode()))
        assert admin.session.closed_reason == "Credentials Revoked"
        assert not client.link.closed


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        (A.public, "", "jwt update error - request body is empty"),
        (A.public, "abc", "jwt update resulted in error - expected 3 chunks"),
        (B.public, of_a(), "jwt update resulted in error - subject does not match jwt content"),
        (
            SYSTEM.public,
            account_token(STRANGER, SYSTEM, issued_at=9),
            "jwt update resulted in error - account validation failed",
        ),
    ],
)
def test_without_a_directory_a_bad_token_is_refused(name: str, body: str, text: str) -> None:
    with Desk(None) as desk:
        error = desk.ask(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE", body)["error"]
        assert error == {"account": name, "code": 500, "description": text}


# -- questions ---------------------------------------------------------------------------------------------------
def test_a_token_is_looked_up_by_name(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    found = [desk.all_of(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.LOOKUP") for name in (A.public, B.public, "x", "é")]
    assert found == [[of_a().encode()], [b""], [b""], [b""]]


def test_expired_accounts_are_not_listed(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    desk.ask(UPDATE, account_token(OPERATOR, B, "B", issued_at=5, claims={"exp": START_S + 60}))
    assert {*desk.ask("$SYS.REQ.CLAIMS.LIST")["data"]} == {SYSTEM.public, A.public, B.public}
    desk.advance(seconds=62)
    assert {*desk.ask("$SYS.REQ.CLAIMS.LIST")["data"]} == {SYSTEM.public, A.public}


def test_all_tokens_are_sent_to_a_directory_that_has_others(desk: Desk) -> None:
    for at in range(STEP + 5):  # more than the directory lists in one step
        key = Key("account", at.to_bytes(32, "big"))
        desk.ask(UPDATE, account_token(OPERATOR, key, issued_at=5))
    packed = desk.all_of("$SYS.REQ.CLAIMS.PACK")
    assert len(packed) == STEP + 7
    assert packed[-1] == b""
    assert all(b"|eyJ" in each for each in packed[:-1])
    resolver: Any = desk.node.trust.resolver  # type: ignore[union-attr]
    assert desk.all_of("$SYS.REQ.CLAIMS.PACK", resolver.directory.digest()) == [b""]


# -- removal -----------------------------------------------------------------------------------------------------
def test_a_removed_account_loses_its_clients_and_its_file(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    client = desk.log_in(A)
    assert desk.ask(DELETE, deletion(A.public)) == {"data": {"code": 200, "message": "deleted 1 accounts"}}
    assert client.link.closed
    assert desk.log_in(A).link.closed
    assert desk.path is not None
    assert {path.name for path in desk.path.iterdir()} == {f"{SYSTEM.public}.jwt", f"{A.public}.jwt.deleted"}


UNDELETED = {
    "no token": ("abc", "", "expected 3 chunks"),
    "another operator": (deletion(A.public, signer=STRANGER), STRANGER.public, "not trusted"),
    "an account": (deletion(A.public, signer=A), A.public, "not trusted"),
    "not signed by itself": (
        token(OPERATOR, "generic", A.public, "", {"accounts": [A.public]}, 5),
        A.public,
        "not self signed",
    ),
    "no list": (token(OPERATOR, "generic", OPERATOR.public, "", {}, 5), OPERATOR.public, "malformed request"),
    "a name that is none": (deletion(A.public, "../x"), OPERATOR.public, "malformed request"),
    "a number": (deletion(7), OPERATOR.public, "malformed request"),
    "the system account": (
        deletion(A.public, SYSTEM.public),
        OPERATOR.public,
        "not allowed to delete system account",
    ),
    "too many": (deletion(*[A.public] * (DELETIONS_MAX + 1)), OPERATOR.public, "malformed request"),
}


@pytest.mark.parametrize("name", UNDELETED)
def test_a_removal_that_is_not_allowed_removes_nothing(desk: Desk, name: str) -> None:
    body, subject, reason = UNDELETED[name]
    desk.ask(UPDATE, of_a())
    client = desk.log_in(A)
    told = desk.ask(DELETE, body)["error"]["description"]
    assert told == f"delete accounts request by {subject} failed - {reason}"
    assert not client.link.closed


def test_removal_must_be_allowed_by_the_configuration(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        told = desk.ask(DELETE, deletion(A.public))["error"]["description"]
        assert told.endswith("failed - delete must be enabled in server config")


def test_a_file_that_cannot_be_removed_is_told_and_the_others_go(desk: Desk) -> None:
    for key in (A, B):
        desk.ask(UPDATE, account_token(OPERATOR, key, issued_at=5))
    assert desk.path is not None
    blocked = desk.path / f"{A.public}.jwt.deleted"
    blocked.mkdir()
    (blocked / "x").touch()
    told = desk.ask(DELETE, deletion(A.public, B.public))["error"]["description"]
    assert told.startswith("deleted 1 accounts, failed for 1 - remove ")
    assert not desk.log_in(A).link.closed
    assert desk.log_in(B).link.closed


def test_a_client_of_another_account_is_not_answered(desk: Desk) -> None:
    desk.ask(UPDATE, of_a())
    client = desk.log_in(A)
    client.send(b"SUB r 1\r\n")
    for subject in (UPDATE, DELETE, "$SYS.REQ.CLAIMS.LIST", f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.LOOKUP"):
        client.send(b"PUB %b r 0\r\n\r\n" % subject.encode())
    assert client.payloads() == []
