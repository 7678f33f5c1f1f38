"""Exports, imports and mappings in tokens of accounts work as in nats-server, and change on live connections."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.exchange import AccountClient
from tests.support.jwt_clients import World

from pyjs.testing.jwt import Key, account_token, operator_token, token, user_token

pytestmark = needs_peer
NOW = int(time.time())
WORLD = World()
A, B, C, SIGNING, STRANGER = (Key("account") for _ in range(5))
NAMES = {A.public: "A", B.public: "B", C.public: "C"}
USERS = {account.public: Key("user") for account in (A, B, C)}
UPDATE, DELETE = b"$SYS.REQ.CLAIMS.UPDATE", b"$SYS.REQ.CLAIMS.DELETE"
CONFIG = (
    f"operator: {operator_token(WORLD.operator, system_account=WORLD.system.public)}\n"
    'resolver { type: full, dir: "<<store>>/jwt", allow_delete: true }\n'
    f"resolver_preload {{ {WORLD.system.public}: {WORLD.preload[WORLD.system.public]} }}\n"
)


def stream(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "type": "stream", **more}


def service(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "type": "service", **more}


def from_a(kind: Callable[..., dict[str, Any]], subject: str, **more: Any) -> dict[str, Any]:
    return kind(subject, account=A.public, **more)


def activation(
    subject: str, kind: str, signer: Key = A, importer: Key = B, issued_at: int = NOW - 100, **more: Any
) -> str:
    """Return the token with which `importer` may import a private export."""
    claims = {name: more.pop(name) for name in ("exp", "nbf") if name in more}
    return token(
        signer,
        "activation",
        importer.public,
        "",
        {"subject": subject, "kind": kind, **more},
        issued_at,
        **claims,
    )


class Scene:
    """The three accounts; requests change their tokens."""

    def __init__(self, server: ServerProcess) -> None:
        self.port = server.port
        self._admin = WORLD.admin_client(server.port)
        self._issued_at = NOW - 1000

    def set(self, account: Key, **nats: Any) -> str:
        """Store a new token of an account; return the server's answer."""
        self._issued_at += 1
        text = account_token(
            WORLD.operator, account, NAMES[account.public], issued_at=self._issued_at, **nats
        )
        return self._said(self._admin.request(UPDATE, text.encode()))

    def delete(self, account: Key) -> str:
        text = token(WORLD.operator, "generic", WORLD.operator.public, nats={"accounts": [account.public]})
        return self._said(self._admin.request(DELETE, text.encode()))

    def _said(self, answer: bytes) -> str:
        fields = json.loads(answer)
        return str(fields.get("error", fields.get("data"))["code"])

    def client(self, account: Key, name: str = "", **connect: Any) -> AccountClient:
        """Return a client of an account."""
        jwt = user_token(account, USERS[account.public], "user", issued_at=NOW - 100, bearer_token=True)
        fields = {"user": None, "pass": None, "jwt": jwt, **connect}
        return AccountClient(self.port, name or NAMES[account.public].lower(), **fields)

    def both(self) -> tuple[AccountClient, AccountClient]:
        """Return a client of A and one of B, both subscribed to every subject that is published here."""
        b = self.client(B)
        b.do(b"SUB s.> 71", b"SUB l.> 72", b"SUB p.> 73", b"SUB of.> 74")
        a = self.client(A)
        a.do(b"SUB help 75", b"SUB help.> 76", b"SUB from.> 77", b"SUB lat 78")
        return a, b


def exchange(a: AccountClient, b: AccountClient) -> tuple[str, str]:
    """Publish on every subject once; return the messages that both clients get."""
    a.do(b"PUB s.one 1\r\n1", b"PUB s.two.x 1\r\n2", b"PUB of.%b 1\r\n3" % B.public.encode(), b"PUB m 1\r\n4")
    for at, subject in enumerate((b"help", b"help.me.now", b"l.help", b"l.me.now", b"m")):
        b.do(b"PUB %b _INBOX.b.%d 1\r\n5" % (subject, at))
    a.fence()
    b.fence()
    return a.seen(), b.seen()


SIGNED = {"signing_keys": [SIGNING.public]}
PRIVATE = [stream("s.>", token_req=True), service("help", token_req=True)]


def privately(stream_token: str, service_token: str) -> list[dict[str, Any]]:
    return [from_a(stream, "s.>", token=stream_token), from_a(service, "help", token=service_token)]


def activated(**given: Any) -> list[dict[str, Any]]:
    return privately(activation("s.>", "stream", **given), activation("help", "service", **given))


# By name: the exports of A and other claims of its token, the imports of B and other claims of its token.
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a stream": ({"exports": [stream("s.>")]}, {"imports": [from_a(stream, "s.>")]}),
    "a part of a stream": ({"exports": [stream("s.>")]}, {"imports": [from_a(stream, "s.two.*")]}),
    "a stream under another subject": (
        {"exports": [stream("s.>")]},
        {"imports": [from_a(stream, "s.>", local_subject="l.>")]},
    ),
    "a stream with its tokens exchanged": (
        {"exports": [stream("s.*.*")]},
        {"imports": [from_a(stream, "s.*.*", local_subject="l.$2.$1")]},
    ),
    "a stream with a prefix": ({"exports": [stream("s.>")]}, {"imports": [from_a(stream, "s.>", to="p")]}),
    "a service": ({"exports": [service("help")]}, {"imports": [from_a(service, "help")]}),
    "a service with wildcards": (
        {"exports": [service("help.>")]},
        {"imports": [from_a(service, "help.*.*")]},
    ),
    "a service under another subject": (
        {"exports": [service("help.*.*")]},
        {"imports": [from_a(service, "help.*.*", local_subject="l.$1.$2")]},
    ),
    "a service under another subject, in the old form": (
        {"exports": [service("help")]},
        {"imports": [from_a(service, "l.help", to="help")]},
    ),
    "a service that learns the client": (
        {"exports": [service("help")]},
        {"imports": [from_a(service, "help", share=True)]},
    ),
    "streams and services": (
        {"exports": [stream("s.>"), service("help"), service("help.>")]},
        {"imports": [from_a(stream, "s.>"), from_a(service, "help"), from_a(service, "help.me.now")]},
    ),
    "what is not exported": (
        {"exports": [stream("other"), service("others")]},
        {"imports": [from_a(stream, "s.>"), from_a(service, "help")]},
    ),
    "more than what is exported": (
        {"exports": [stream("s.one"), service("help.me.now")]},
        {"imports": [from_a(stream, "s.>"), from_a(service, "help.>")]},
    ),
    "the other kind": (
        {"exports": [service("s.>"), stream("help")]},
        {"imports": [from_a(stream, "s.>"), from_a(service, "help")]},
    ),
    "private ones without an activation": (
        {"exports": PRIVATE},
        {"imports": [from_a(stream, "s.>"), from_a(service, "help")]},
    ),
    "private ones": ({"exports": PRIVATE}, {"imports": activated()}),
    "private ones by a signing key": (
        {"exports": PRIVATE, **SIGNED},
        {"imports": activated(signer=SIGNING, issuer_account=A.public)},
    ),
    "private ones by a key of nobody": (
        {"exports": PRIVATE, **SIGNED},
        {"imports": activated(signer=STRANGER, issuer_account=A.public)},
    ),
    "private ones with an expired activation": ({"exports": PRIVATE}, {"imports": activated(exp=NOW - 50)}),
    "private ones too early": ({"exports": PRIVATE}, {"imports": activated(nbf=NOW + 1000)}),
    "private ones for long": ({"exports": PRIVATE}, {"imports": activated(exp=NOW + 1000)}),
    "a part of private ones": (
        {"exports": [stream("s.>", token_req=True), service("help.>", token_req=True)]},
        {
            "imports": [
                from_a(stream, "s.one", token=activation("s.>", "stream")),
                from_a(service, "help.me.now", token=activation("help.me.*", "service")),
            ]
        },
    ),
    "revoked ones": (
        {
            "exports": [
                stream("s.>", token_req=True, revocations={B.public: NOW}),
                service("help", token_req=True, revocations={"*": NOW}),
            ]
        },
        {"imports": activated()},
    ),
    "ones that are newer than their revocation": (
        {
            "exports": [
                stream("s.>", token_req=True, revocations={B.public: NOW - 101}),
                service("help", token_req=True, revocations={C.public: NOW}),
            ]
        },
        {"imports": activated()},
    ),
    "ones of the second of their revocation": (
        {
            "exports": [
                stream("s.>", token_req=True, revocations={B.public: NOW - 100}),
                service("help", token_req=True, revocations={"*": NOW - 100}),
            ]
        },
        {"imports": activated()},
    ),
    "its own token of the subject": (
        {"exports": [stream("of.*", account_token_position=2)]},
        {"imports": [from_a(stream, f"of.{B.public}")]},
    ),
    "a token of the subject of another one": (
        {"exports": [stream("of.*", account_token_position=2)]},
        {"imports": [from_a(stream, f"of.{C.public}")]},
    ),
    "all tokens of the subject": (
        {"exports": [stream("of.*", account_token_position=2)]},
        {"imports": [from_a(stream, "of.*")]},
    ),
    "its own token of a private subject": (
        {"exports": [stream("of.*", account_token_position=2, token_req=True)]},
        {"imports": [from_a(stream, f"of.{B.public}")]},
    ),
    "the same stream twice": (
        {"exports": [stream("s.>")]},
        {"imports": [from_a(stream, "s.>"), from_a(stream, "s.>", local_subject="l.>")]},
    ),
    "of an unknown account": (
        {"exports": [stream("s.>")]},
        {"imports": [stream("s.>", account=STRANGER.public), from_a(stream, "s.>")]},
    ),
    "measured services": (
        {"exports": [service("help", service_latency={"sampling": 100, "results": "lat"})]},
        {"imports": [from_a(service, "help", share=True)]},
    ),
    "mapped subjects": (
        {
            "exports": [stream("s.>"), service("help")],
            "mappings": {"m": [{"subject": "s.mapped"}], "help": [{"subject": "from.help"}]},
        },
        {
            "imports": [from_a(stream, "s.>"), from_a(service, "help")],
            "mappings": {"m": [{"subject": "help"}]},
        },
    ),
    "weighted mappings": (
        {
            "exports": [stream("s.>")],
            "mappings": {"m": [{"subject": "s.never", "weight": 100, "cluster": "x"}]},
        },
        {"imports": [from_a(stream, "s.>")]},
    ),
    "default permissions": (
        {"exports": [stream("s.>"), service("help")]},
        {
            "imports": [from_a(stream, "s.>"), from_a(service, "help")],
            "default_permissions": {"sub": {"allow": ["s.>", "_INBOX.>"]}, "pub": {"deny": ["help"]}},
        },
    ),
}


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The messages that clients of both servers get with each declaration, in new tokens of the same accounts."""

    def look(server: ServerProcess) -> dict[str, Any]:
        scene, seen = Scene(server), {}
        for name, (of_a, of_b) in DECLARED.items():
            said = scene.set(A, **of_a), scene.set(B, **of_b)
            a, b = scene.both()
            seen[name] = said, exchange(a, b)
            a.close()
            b.close()
        return seen

    return of_both(tmp_path_factory.mktemp("declared"), CONFIG, look)


@pytest.mark.parametrize("name", list(DECLARED))
def test_an_account_imports(name: str, declared: Any) -> None:
    peer, ours = (each[name] for each in declared)
    assert ours == peer


# Changes of tokens while clients are connected


def added_import(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>"), service("help")])
    scene.set(B)
    clients = scene.both()
    before = exchange(*clients)
    scene.set(B, imports=[from_a(stream, "s.>"), from_a(service, "help")])
    return before, exchange(*clients)


def removed_import(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>"), service("help")])
    scene.set(B, imports=[from_a(stream, "s.>"), from_a(service, "help")])
    clients = scene.both()
    before = exchange(*clients)
    scene.set(B)
    return before, exchange(*clients)


def added_export(scene: Scene) -> Any:
    scene.set(A)
    scene.set(B, imports=[from_a(stream, "s.>"), from_a(service, "help")])
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A, exports=[stream("s.>"), service("help")])
    return before, exchange(*clients)


def removed_stream_export(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>")])
    scene.set(B, imports=[from_a(stream, "s.>")])
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A)
    after = exchange(*clients)
    scene.set(A, exports=[stream("s.>")])
    return before, after, exchange(*clients)


def removed_service_export(scene: Scene) -> Any:
    scene.set(A, exports=[service("help")])
    scene.set(B, imports=[from_a(service, "help")])
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A)
    after = exchange(*clients)
    scene.set(A, exports=[service("help")])
    return before, after, exchange(*clients)


def made_private(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>")])
    scene.set(B, imports=[from_a(stream, "s.>")])
    clients = scene.both()
    scene.set(A, exports=[stream("s.>", token_req=True)])
    before = exchange(*clients)
    scene.set(B, imports=[from_a(stream, "s.>", token=activation("s.>", "stream"))])
    clients[1].do(b"UNSUB 71", b"SUB s.> 71")  # nats-server requires the new subscription
    return before, exchange(*clients)


def revoked_activation(scene: Scene) -> Any:
    scene.set(A, exports=PRIVATE)
    scene.set(B, imports=activated())
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A, exports=[{**each, "revocations": {B.public: NOW}} for each in PRIVATE])
    after = exchange(*clients)
    scene.set(A, exports=PRIVATE)
    return before, after, exchange(*clients)


def removed_signing_key(scene: Scene) -> Any:
    scene.set(A, exports=PRIVATE, **SIGNED)
    scene.set(B, imports=activated(signer=SIGNING, issuer_account=A.public))
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A, exports=PRIVATE)
    return before, exchange(*clients)


def changed_mapping(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>")], mappings={"m": [{"subject": "s.m"}]})
    scene.set(B, imports=[from_a(stream, "s.>")])
    clients = scene.both()
    before = exchange(*clients)
    scene.set(A, exports=[stream("s.>")])
    return before, exchange(*clients)


def expired_activation(scene: Scene) -> Any:
    """An activation expires while clients are connected."""
    scene.set(A, exports=PRIVATE)
    scene.set(B, imports=activated(exp=int(time.time()) + 2))
    a, b = scene.both()
    first = exchange(a, b)
    until = time.monotonic() + 20
    while "5\r\n" in exchange(a, b)[0] and time.monotonic() < until:
        a.fence()
    return first, exchange(a, b)


def deleted_exporter(scene: Scene) -> Any:
    scene.set(A, exports=[service("help")])
    scene.set(B, imports=[from_a(service, "help")])
    _, b = scene.both()
    done = scene.delete(A)
    b.do(b"PUB help _INBOX.b.1 1\r\n3")
    return done, b.seen()


def late_exporter(scene: Scene) -> Any:
    """The exporting account gets its first token after the importing account."""
    scene.set(B, imports=[from_a(stream, "s.>"), from_a(service, "help")])
    b = scene.client(B)
    b.do(b"SUB s.> 71")
    scene.set(A, exports=[stream("s.>"), service("help")])
    a = scene.client(A)
    a.do(b"SUB help 75")
    return exchange(a, b)


def three_accounts(scene: Scene) -> Any:
    """A request passes through two imports; C's client publishes it."""
    scene.set(A, exports=[service("help")])
    scene.set(B, imports=[from_a(service, "help", local_subject="l.help")], exports=[service("l.help")])
    scene.set(C, imports=[service("l.help", account=B.public, local_subject="far")])
    c = scene.client(C)
    a = scene.client(A)
    a.do(b"SUB help 75")
    c.do(b"PUB far _INBOX.c.1 1\r\n3")
    subject, reply, headers, payload = a.next()
    a.do(b"PUB %b 2\r\nok" % reply)
    return subject, headers, payload, c.seen()


def stream_cycle(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>")], imports=[stream("s.>", account=B.public)])
    scene.set(B, exports=[stream("s.>")], imports=[from_a(stream, "s.>")])
    a, b = scene.both()
    a.do(b"SUB s.> 79")
    b.do(b"PUB s.b 1\r\n6")
    return exchange(a, b)


def service_cycle(scene: Scene) -> Any:
    scene.set(B, exports=[service("help")], imports=[from_a(service, "help")])
    scene.set(A, exports=[service("help")], imports=[service("help", account=B.public)])
    a, b = scene.both()
    return exchange(a, b)


def cycle_that_opens(scene: Scene) -> Any:
    scene.set(A, exports=[stream("s.>")], imports=[stream("s.>", account=B.public)])
    scene.set(B, exports=[stream("s.>")], imports=[from_a(stream, "s.>")])
    a, b = scene.both()
    before = exchange(a, b)
    scene.set(A, exports=[stream("s.>")])
    after = exchange(a, b)
    return before, after


def several_responses(scene: Scene) -> Any:
    scene.set(
        A, exports=[service("help", response_type="Stream"), service("help.>", response_type="Chunked")]
    )
    scene.set(B, imports=[from_a(service, "help"), from_a(service, "help.me")])
    a, b = scene.both()
    seen = []
    for subject in (b"help", b"help.me"):
        b.do(b"PUB %b _INBOX.b.1 1\r\n3" % subject)
        reply = a.next()[1]
        a.do(*[b"PUB %b 1\r\n%d" % (reply, at) for at in range(3)], b"PUB %b 0\r\n" % reply)
        a.do(b"PUB %b 1\r\n9" % reply)
        seen.append(b.seen())
    return seen


def sample_of_a_late_response(scene: Scene) -> Any:
    """The time limit of a response is the one in the token."""
    latency = {"sampling": "headers", "results": "lat"}
    scene.set(A, exports=[service("help", service_latency=latency, response_threshold=50_000_000)])
    scene.set(B, imports=[from_a(service, "help")])
    a, b = scene.both()
    headers = b"NATS/1.0\r\nX-B3-Sampled: 1\r\n\r\n"
    b.do(b"HPUB help _INBOX.b.1 %d %d\r\n%b" % (len(headers), len(headers), headers))
    subject, _, asked, _ = a.next()
    return subject, asked, a.next()


def events_of_its_own(scene: Scene) -> Any:
    """An account imports the events about itself that the system account exports."""
    system = WORLD.system.public
    exports = [
        stream("$SYS.ACCOUNT.*.>", account_token_position=3),
        service("$SYS.REQ.ACCOUNT.*.*", account_token_position=4),
    ]
    text = account_token(WORLD.operator, WORLD.system, "SYS", issued_at=NOW, exports=exports)
    said = scene._said(scene._admin.request(UPDATE, text.encode()))
    imports = [
        stream(f"$SYS.ACCOUNT.{B.public}.>", account=system, local_subject="me.>"),
        service(f"$SYS.REQ.ACCOUNT.{B.public}.*", account=system, local_subject="ask.*"),
    ]
    scene.set(B, imports=imports)
    b = scene.client(B)
    b.do(b"SUB me.> 71")
    answer = json.loads(b.request(b"ask.CONNZ"))
    connected = scene.client(B, "b2")
    first = b.next()
    connected.close()
    return said, answer["data"]["num_connections"], first[0]


@pytest.mark.parametrize(
    "look",
    [
        added_import,
        removed_import,
        added_export,
        removed_stream_export,
        removed_service_export,
        made_private,
        revoked_activation,
        removed_signing_key,
        changed_mapping,
        expired_activation,
        deleted_exporter,
        late_exporter,
        three_accounts,
        stream_cycle,
        service_cycle,
        cycle_that_opens,
        several_responses,
        sample_of_a_late_response,
        events_of_its_own,
    ],
    ids=lambda look: look.__name__,
)
def test_a_change_of_tokens_reaches_connected_clients(look: Callable[[Scene], Any], tmp_path: Path) -> None:
    peer, ours = of_both(tmp_path, CONFIG, lambda server: look(Scene(server)))
    assert ours == peer


def test_the_page_of_an_account_shows_its_imports_and_exports(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        scene = Scene(server)
        revoked = stream("r.>", token_req=True, revocations={B.public: NOW})
        scene.set(A, exports=[stream("s.>"), stream("p.>", token_req=True), revoked, service("help")])
        scene.set(
            B, imports=[from_a(stream, "s.>"), from_a(stream, "p.>"), from_a(service, "help", share=True)]
        )
        scene.client(B)
        shown = []
        for account in (A, B):
            answer = scene._admin.request(b"$SYS.REQ.ACCOUNT.%b.INFO" % account.public.encode())
            page = json.loads(answer)["data"]
            lists = [sorted(page.get(name, []), key=json.dumps) for name in ("exports", "imports")]
            shown.append((page["complete"], [sorted(each.items()) for entries in lists for each in entries]))
        return [(complete, sorted(entries, key=repr)) for complete, entries in shown]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
