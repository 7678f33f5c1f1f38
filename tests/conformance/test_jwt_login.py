"""Our server accepts and refuses users with tokens as nats-server does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.jwt_clients import TokenClient, World, attempt

from pyjs.testing.jwt import Key, token, user_token

PEER = peer_command()
pytestmark = needs_peer
NOW = int(time.time())
DAY = 86400
WORLD = World()
A, B, SIGNING, ROLE, STRANGER = (Key("account") for _ in range(5))
BARE, REVOKING, EXPIRED, FULL, QUIET, FOREIGN = (Key("account") for _ in range(6))
ALICE, BOB = Key("user"), Key("user")
TEMPLATE = {
    "pub": {"allow": ["p.{{name()}}", "t.{{tag(team)}}.{{account-tag(site)}}", "s.{{subject()}}"]},
    "sub": {"allow": ["s.{{account-name()}}", "_INBOX.>"], "deny": ["s.{{account-subject()}}.secret"]},
    "subs": 2,
    "payload": 8,
    "data": -1,
}
SCOPES = [
    {"kind": "user_scope", "key": ROLE.public, "role": "worker", "template": TEMPLATE, "description": ""}
]
WORLD.add(A, "A", signing_keys=[SIGNING.public, *SCOPES], tags=["site:north", "site:south"])
WORLD.add(B, "B")
WORLD.add(BARE, "BARE", limits={"disallow_bearer": True})
WORLD.add(REVOKING, "REVOKING", revocations={ALICE.public: NOW - 10, "*": NOW - DAY})
WORLD.add(FULL, "FULL", limits={"conn": 0})
WORLD.add(QUIET, "QUIET", default_permissions={"pub": {"allow": ["ok"]}, "sub": {"deny": ["no.>"]}})


def of(signer: Key, **given: Any) -> dict[str, Any]:
    """Return a login attempt by Alice with a token that `signer` signed."""
    return {"jwt": user_token(signer, ALICE, "alice", **given), "key": ALICE}


def publish(*subjects: str) -> bytes:
    return b"".join(b"PUB %b 1\r\nx\r\n" % subject.encode() for subject in subjects)


def subscribe(*subjects: str) -> bytes:
    return b"".join(b"SUB %b %d\r\n" % (subject.encode(), sid) for sid, subject in enumerate(subjects))


def clock(offset_s: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(NOW + offset_s))


TRIED = publish("p.alice", "p.bob", "t.x.north", "t.y.south", "t.z.north", "t.x.", f"s.{ALICE.public}")
SCOPED: dict[str, Any] = {"scoped": True, "issuer_account": A.public}
ATTEMPTS: dict[str, dict[str, Any]] = {
    "by the account": of(A),
    "without a signature": {"jwt": user_token(A, ALICE)},
    "signed by another user": {"jwt": user_token(A, ALICE), "key": BOB},
    "a signature that is no base 64": {"jwt": user_token(A, ALICE), "sig": "!!"},
    "another nonce": {"jwt": user_token(A, ALICE), "sig": ALICE.sign_nonce("AAAAAAAAAAAAAAA")},
    "no token": {},
    "a password": {"user": "a", "pass": "b"},
    "a token and a password": {**of(A), "user": "a", "pass": "b"},
    "a token and an nkey": {**of(A), "nkey": ALICE.public},
    "not a token": {"jwt": "abc", "key": ALICE},
    "two chunks": {"jwt": "a.b", "key": ALICE},
    "a token of an account": {"jwt": WORLD.preload[A.public], "key": ALICE},
    "changed after it was signed": {"jwt": user_token(A, ALICE)[:-3] + "AAA", "key": ALICE},
    "by an operator": {"jwt": token(WORLD.operator, "user", ALICE.public), "key": ALICE},
    "by an unknown account": of(STRANGER),
    "for the account by a stranger": of(STRANGER, issuer_account=A.public),
    "by a signing key": of(SIGNING, issuer_account=A.public),
    "by a signing key without its account": of(SIGNING),
    "by a signing key of another account": of(SIGNING, issuer_account=B.public),
    "an account that is no key": of(A, issuer_account="abc"),
    "expired": of(A, claims={"exp": NOW - 10}),
    "not yet valid": of(A, claims={"nbf": NOW + DAY}),
    "long valid": of(A, claims={"exp": NOW + DAY, "nbf": NOW - DAY}),
    "a bearer": {"jwt": user_token(A, ALICE, bearer_token=True)},
    "a bearer that signs": of(A, bearer_token=True),
    "a bearer that signs wrongly": {"jwt": user_token(A, ALICE, bearer_token=True), "key": BOB},
    "a bearer where none is allowed": of(BARE, bearer_token=True),
    "no bearer where none is allowed": of(BARE),
    "revoked": of(REVOKING, issued_at=NOW - 10),
    "revoked before": of(REVOKING, issued_at=NOW - 9),
    "all are revoked": {
        "jwt": user_token(REVOKING, BOB, issued_at=NOW - DAY),
        "key": BOB,
    },
    "others are revoked": {"jwt": user_token(REVOKING, BOB, issued_at=NOW - DAY + 1), "key": BOB},
    "from here": of(A, src=["10.0.0.0/8", "127.0.0.0/8"]),
    "from here, as a text": of(A, src="10.0.0.0/8, 127.0.0.1/32"),
    "from elsewhere": of(A, src=["10.0.0.0/8"]),
    "from nowhere": of(A, src=["nowhere"]),
    "an address without a mask": of(A, src=["127.0.0.1"]),
    "at this time": of(A, times=[{"start": clock(-60), "end": clock(3600)}], times_location="UTC"),
    "at another time": of(A, times=[{"start": clock(3600), "end": clock(7200)}], times_location="UTC"),
    "at one of two times": of(
        A,
        times=[{"start": clock(3600), "end": clock(7200)}, {"start": clock(-60), "end": clock(3600)}],
        times_location="UTC",
    ),
    "over midnight": of(A, times=[{"start": clock(-60), "end": clock(-120)}], times_location="UTC"),
    "at no time": of(A, times=[{"start": "25:00:00", "end": "26:00:00"}]),
    "without an end": of(A, times=[{"start": "10:00:00"}]),
    "in no zone": of(A, times=[{"start": "00:00:00", "end": "23:59:59"}], times_location="Nowhere/City"),
    "by this connection": of(A, allowed_connection_types=["STANDARD", "MQTT"]),
    "by this connection, in lower case": of(A, allowed_connection_types=["standard"]),
    "by another connection": of(A, allowed_connection_types=["WEBSOCKET"]),
    "by an unknown connection": of(A, allowed_connection_types=["SMOKE"]),
    "by an unknown connection or this one": of(A, allowed_connection_types=["SMOKE", "STANDARD"]),
    "needs a proxy": of(A, proxy_required=True),
    "a full account": of(FULL),
    "an account of choice": {**of(A), "account": "A"},
    "a new account": {**of(A), "new_account": True},
    "may publish": {**of(A, pub={"allow": ["a.*"], "deny": ["a.b"]}), "more": publish("a.a", "a.b", "b")},
    "may subscribe": {
        **of(A, sub={"allow": ["a.*", "q w"], "deny": ["a.b"]}),
        "more": subscribe("a.a", "a.b", "b", "a.* g", "q", "q w", "q x"),
    },
    "may only answer": {**of(A, resp={"max": 1, "ttl": 0}), "more": publish("a")},
    "may answer and publish": {
        **of(A, resp={"max": 0, "ttl": 0}, pub={"allow": ["a"]}),
        "more": publish("a", "b"),
    },
    "permissions by default": {**of(QUIET), "more": publish("ok", "bad") + subscribe("no.1", "yes")},
    "permissions of its own": {**of(QUIET, pub={"deny": ["x"]}), "more": publish("ok", "bad", "x")},
    "a bad permission": of(A, pub={"allow": ["a..b"]}),
    "a permission with a queue to publish": of(A, pub={"allow": ["a b"]}),
    "few subscriptions": {**of(A, subs=2), "more": subscribe("a", "b", "c")},
    "small payloads": {**of(A, payload=3), "more": b"PUB a 3\r\nabc\r\nPUB a 4\r\nabcd\r\n"},
    "no payload": {**of(A, payload=0), "more": b"PUB a 0\r\n\r\nPUB a 1\r\na\r\n"},
    "a role": {**of(ROLE, **SCOPED), "more": publish("p.alice", "p.bob")},
    "a role with tags": {**of(ROLE, **SCOPED, tags=["team:x", "team:y"]), "more": TRIED},
    "a role without tags": {**of(ROLE, **SCOPED), "more": TRIED},
    "a role that subscribes": {
        **of(ROLE, **SCOPED),
        "more": subscribe("s.A", "s.B", f"s.{A.public}.secret", "_INBOX.a", "_INBOX.b"),
    },
    "a role with small payloads": {**of(ROLE, **SCOPED), "more": b"PUB p.alice 9\r\n123456789\r\n"},
    "a role with limits": of(ROLE, issuer_account=A.public),
    "a role with permissions": of(ROLE, **SCOPED, pub={"allow": ["a"]}),
    "a role without an account": of(ROLE, scoped=True),
    "version 1 of the claims": {
        "jwt": token(A, "user", ALICE.public, nats={"type": "user", "version": 1}),
        "key": ALICE,
    },
    "a newer version": {
        "jwt": token(A, "user", ALICE.public, nats={"type": "user", "version": 3}),
        "key": ALICE,
    },
    "a subject that is no user": {"jwt": token(A, "user", A.public, nats={"subs": -1}), "key": ALICE},
    "claims of a wrong type": of(A, pub=[1]),
    "twice": {**of(A), "more": b"CONNECT {}\r\n"},
}


def started(tmp: pytest.TempPathFactory, config: str) -> tuple[list[int], Callable[[], None]]:
    """Start both servers; return their ports, and a function that stops them."""
    assert PEER is not None
    servers = []
    for kind, command in (("peer", PEER), ("ours", our_command())):
        servers.append(ServerProcess(command, config, tmp.mktemp(kind), with_http=False, may_fork=True))
        servers[-1].start()

    def end() -> None:
        for server in servers:
            server.kill()

    return [server.port for server in servers], end


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found, end = started(tmp_path_factory, WORLD.config())
    yield found
    end()


@pytest.mark.parametrize("name", list(ATTEMPTS))
def test_who_is_let_in(name: str, ports: list[int]) -> None:
    peer, ours = (attempt(port, **ATTEMPTS[name]) for port in ports)
    assert ours == peer


SENTINELS = {
    "none": {},
    "not a token": {"jwt": "abc"},
    "its own": of(A),
    "its own, without a signature": {"jwt": user_token(A, ALICE)},
    "a password": {"user": "a", "pass": "b"},
}


@pytest.fixture(scope="module")
def sentinel_ports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    sentinel = user_token(A, BOB, "sentinel", bearer_token=True, pub={"allow": ["s"]})
    pinned = f"default_sentinel: {sentinel}\nresolver_pinned_accounts: [{A.public}]"
    found, end = started(tmp_path_factory, WORLD.config(pinned))
    yield found
    end()


@pytest.mark.parametrize("name", list(SENTINELS))
def test_the_default_sentinel(name: str, sentinel_ports: list[int]) -> None:
    peer, ours = (attempt(port, **SENTINELS[name], more=publish("s", "a")) for port in sentinel_ports)
    assert ours == peer


def test_an_account_that_is_not_pinned(sentinel_ports: list[int]) -> None:
    peer, ours = (attempt(port, **of(B)) for port in sentinel_ports)
    assert ours == peer


def test_the_token_of_a_client_is_for_services_that_it_is_shared_with_and_not_in_advisories(
    tmp_path: Path,
) -> None:
    world, exporter, importer = World(), Key("account"), Key("account")
    limits = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    help_of_a = {"subject": "help", "type": "service"}
    world.add(exporter, "A", limits=limits, exports=[help_of_a])
    world.add(importer, "B", imports=[{**help_of_a, "account": exporter.public, "share": True}])

    def client(server: ServerProcess, account: Key, user: Key, name: str) -> TokenClient:
        return TokenClient(
            server.port, user_token(account, user, name, bearer_token=True, tags=["a:b"]), None, name="c"
        )

    def look(server: ServerProcess) -> Any:
        a, b = client(server, exporter, ALICE, "alice"), client(server, importer, BOB, "bob")
        a.send(b"SUB help 5\r\nSUB $JS.EVENT.ADVISORY.API 6\r\n")
        a.fence()
        b.send(b"PUB help 1\r\nx\r\n")
        frames = a.frames()
        shared = json.loads(next(frames)[2].split(b"Info:")[1])
        a.send(b"PUB $JS.API.INFO _INBOX.raw.9 0\r\n\r\n")
        told = next(json.loads(body) for subject, _, _, body in frames if subject.startswith(b"$JS.EVENT"))
        return [*shared], shared["name_tag"], [*told["client"]], told["client"]["name_tag"]

    peer, ours = of_both(tmp_path, world.config('jetstream { store_dir: "<<store>>" }'), look)
    assert ours == peer
    assert "jwt" in ours[0]
    assert "jwt" not in ours[2]
