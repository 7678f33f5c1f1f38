"""The effect of every key, as an experiment: a file with the key and without it, and an observed difference.

This file has the keys whose effect shows on a node with a virtual clock; those of the process itself are in
process_effects.py. Long because every key has its experiment.

Observations are made from outside, as a client or through the monitoring port, and never of Options.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

from tests.support.nkeys import Nkey
from tests.support.stored_streams import WriterAtOnce, account_files, create_stream
from tests.unit.monitor.conftest import Site

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.claims.token import decode
from pyjs.config.load import load_options
from pyjs.core.host import SessionEvents
from pyjs.core.trust.directory import DirectoryFault, TokenDirectory
from pyjs.core.trust.resolvers import DirectoryResolver
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.store.crypt.keys import CHACHA, KeyRing
from pyjs.testing import RawClient
from pyjs.testing.jwt import Key, account_token, operator_token, user_token
from pyjs.wire.xkeys import CurveKeyPair

KEY = "<<key>>"  # stands for the key in a text
DIRECTORY = "<<dir>>"


class Effect(NamedTuple):
    """An experiment that shows the effect of one key."""

    text: str  # text of the file
    key: str  # the key as it is written in the file
    observe: Callable[[Any], object]  # its argument is a Site, or a Running for effects on the process
    without: str = ""  # replaces the key in the run without it

    def file(self, directory: Path, with_key: bool) -> str:
        """Return the text of the file with or without the key."""
        text = self.text.replace(KEY, self.key if with_key else self.without)
        return text.replace(DIRECTORY, str(directory))


def open_site(text: str) -> Site:
    """Return a monitored node that runs on `text`."""
    site = Site(load_options("server.conf", lambda path: text, {}, {}))
    site.node.start_jetstream()
    return site


OPERATOR, ACCOUNT, OTHER, MEMBER = (
    Key(kind, bytes([number]) * 32)
    for number, kind in enumerate(("operator", "account", "account", "user"), 1)
)
PRELOAD = f"resolver_preload {{ {ACCOUNT.public}: {account_token(OPERATOR, ACCOUNT)} }}"
TRUSTED = f"trusted_keys: {OPERATOR.public}\nresolver: MEMORY"
BY_TOKEN = json.dumps({"jwt": user_token(ACCOUNT, MEMBER, bearer_token=True)}).encode()
SENTINEL = f"default_sentinel: {user_token(ACCOUNT, MEMBER, bearer_token=True)}"
CALLOUT = "authorization {{ users: [{{user: s, password: pw}}], auth_callout {{ {} }} }}"
ISSUER = f"issuer: {OTHER.public}, auth_users: [s]"
APP = "accounts { APP { users: [{user: app, password: pw}, {user: s2, password: pw}] }, OTHER {} }\n"


def asked(user: str, service: str = "s") -> Callable[[Site], object]:
    """Observe the request about a client that a service gets."""

    def observe(site: Site) -> object:
        desk = site.client(user=service)
        desk.send(b"SUB $SYS.REQ.USER.AUTH 1\r\n")
        desk.take()
        site.client(user=user)
        return [
            frame.payload[:4] + str(token_claims(frame.payload).get("sub")).encode()
            for frame in desk.frames()
        ]

    return observe


def token_claims(payload: bytes) -> dict[str, Any]:
    """Return the claims of a token, or {} if it is encrypted."""
    return decode(payload.decode()).claims if payload.startswith(b"eyJ") else {}


def callout(more: str, observe: Callable[[Any], object], key: str = "", without: str = "") -> Effect:
    """Return the experiment for a key of the authorization callout."""
    return Effect(APP + CALLOUT.format(f"{more}{KEY}"), key, observe, without)


def from_directory(key: str, observe: Callable[[Any], object], more: str = "", without: str = "") -> Effect:
    """Return the experiment for a key of a resolver with a directory."""
    text = f'{TRUSTED.partition(chr(10))[0]}\nresolver {{ dir: "{DIRECTORY}/jwt", {more}{KEY} }}\n{PRELOAD}'
    return Effect(text, key, observe, without)


def directory_of(site: Site) -> TokenDirectory:
    assert site.node.trust is not None
    resolver = site.node.trust.resolver
    assert isinstance(resolver, DirectoryResolver)
    return resolver.directory


def files_after(seconds: int) -> Callable[[Site], object]:
    """Observe the files of the directory after some seconds, and after one more file was made."""

    def observe(site: Site) -> object:
        directory = directory_of(site)
        site.fixture.advance(seconds=seconds)
        directory.load(OTHER.public)
        try:
            directory.save(OTHER.public, account_token(OPERATOR, OTHER))
        except DirectoryFault:
            pass
        return sorted(os.listdir(directory.path))

    return observe


def files_after_removal(site: Site) -> object:
    directory = directory_of(site)
    try:
        directory.delete(ACCOUNT.public)
    except DirectoryFault:
        return "refused"
    return os.listdir(directory.path)


def changed_outside(site: Site) -> object:
    """Observe a client whose account was changed outside the server, after three seconds."""
    assert site.node.trust is not None
    site.node.trust.start()
    member = site.fixture.client(BY_TOKEN)
    path = Path(directory_of(site).path) / f"{ACCOUNT.public}.jwt"
    path.write_text(account_token(OPERATOR, ACCOUNT, limits={"conn": 0}))
    site.fixture.advance(seconds=3)
    return member.session.closed_reason


def slow_fetch(site: Site) -> object:
    """Observe a login whose account is missing for one and a half seconds."""
    site.fixture.hold_jobs = True
    assert site.node.trust is not None
    answers: list[object] = []
    site.node.trust.find(ACCOUNT.public, answers.append)
    site.fixture.advance(milliseconds=1500)
    return answers


# Observations


def varz(name: str) -> Callable[[Site], object]:
    return lambda site: site.json("/varz").get(name)


def jsz(block: str) -> Callable[[Site], object]:
    return lambda site: site.json("/jsz")[block]


def info(name: str) -> Callable[[Site], object]:
    return lambda site: json.loads(site.client().info[5:]).get(name)


def info_of_anybody(name: str) -> Callable[[Site], object]:
    """Observe whether INFO has a field, regardless of its value."""
    return lambda site: name in json.loads(site.client().info[5:])


def answer(data: bytes, user: str = "") -> Callable[[Site], object]:
    """Observe the answer that a client gets to `data`."""

    def observe(site: Site) -> object:
        client = site.client(user=user)
        client.send(data)
        return client.take()

    return observe


def let_in(connect: bytes) -> Callable[[Site], object]:
    return lambda site: not site.fixture.client(connect).link.closed


def api(*requests: tuple[str, dict[str, object]], user: str = "") -> Callable[[Site], object]:
    """Observe the errors of API requests."""

    def observe(site: Site) -> object:
        client = site.client(user=user)
        return [ask(client, subject, body).get("error") for subject, body in requests]

    return observe


def flooded(endpoint: str) -> Callable[[Site], object]:
    """Observe the errors of three API requests that arrive together."""

    def observe(site: Site) -> object:
        client = site.client()
        client.send(b"SUB a 1\r\n" + b"PUB $JS.API.%b a 0\r\n\r\n" % endpoint.encode() * 3)
        return [json.loads(payload).get("error") for payload in client.payloads()]

    return observe


def batched(*messages: tuple[str, int]) -> Callable[[Site], object]:
    """Observe the answers to messages of batches, each with its id and sequence."""

    def observe(site: Site) -> object:
        client = site.client()
        subject, body = stream(allow_atomic=True, subjects=["b"])
        ask(client, subject, body)
        form = "NATS/1.0\r\nNats-Batch-Id: {}\r\nNats-Batch-Sequence: {}\r\n\r\n"
        answers = []
        for each in messages:
            answers.append(client.request(b"b", b"x", form.format(*each).encode()).payload)
            site.fixture.advance(seconds=2)
        return answers

    return observe


def ask(client: RawClient, subject: str, body: dict[str, object]) -> dict[str, Any]:
    frame = client.request(f"$JS.API.{subject}".encode(), json.dumps(body).encode() if body else b"")
    reply: dict[str, Any] = json.loads(frame.payload)
    return reply


def stream(name: str = "S", **config: object) -> tuple[str, dict[str, object]]:
    """Return the request that creates a memory stream."""
    return f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", "subjects": [name.lower()], **config}


def consumer(name: str = "C", **config: object) -> tuple[str, dict[str, object]]:
    """Return the request that creates a consumer of S."""
    fields = {"durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": fields}


def slow_receiver(site: Site) -> RawClient:
    """Return a client that subscribed to `a` and no longer reads."""
    slow = site.client()
    slow.send(b"SUB a 1\r\n")
    slow.session.output_paused()
    return slow


def pending_limit(site: Site) -> object:
    slow, publisher = slow_receiver(site), site.client()
    for _ in range(3):
        publisher.send(b"PUB a 4000\r\n" + b"x" * 4000 + b"\r\n")
    return slow.session.closed_reason


def write_deadline(site: Site) -> object:
    slow = slow_receiver(site)
    site.client().send(b"PUB a 1\r\nx\r\n")
    site.fixture.advance(seconds=5)
    return slow.session.closed_reason


def stalls(site: Site) -> object:
    slow_receiver(site)
    publisher = site.client()
    publisher.send(b"PUB a 900000\r\n" + b"x" * 900_000 + b"\r\n")
    return publisher.session.stalls


def pings(seconds: int) -> Callable[[Site], object]:
    """Observe what a silent client gets within some seconds."""

    def observe(site: Site) -> object:
        client = site.client()
        site.fixture.advance(seconds=seconds)
        return client.take()

    return observe


def second_client(site: Site, user: str = "") -> object:
    site.client(user=user)
    return site.client(user=user).link.closed


def closed_clients(site: Site) -> object:
    for _ in range(3):
        site.client().session.close("Client Closed")
    return len(site.json("/connz?state=closed")["connections"])


def cached_routes(site: Site) -> object:
    subjects = b"".join(b"PUB a.%d 0\r\n\r\n" % number for number in range(50))
    site.client().send(subjects * 3)  # a route is cached when its subject occurs a second time
    return site.json("/subsz")["num_cache"]


def auth_deadline(site: Site) -> object:
    silent = site.fixture.client(connect=None)
    site.fixture.advance(seconds=5)
    return silent.link.closed


def stored_in(directory: str) -> Callable[[Site], object]:
    def observe(site: Site) -> object:
        ask(site.client(), *stream(storage="file"))
        return [path.name for path in Path(site.monitored.options.jetstream.store_dir).parent.iterdir()]

    return observe


def kept(place: slice) -> Callable[[Site], object]:
    """Observe some bytes of a stream's metadata: encrypted metadata begins with a flag and the algorithm."""

    def observe(site: Site) -> object:
        ask(site.client(), *stream(storage="file"))
        return Path(f"{store_of(site)}/$G/streams/S/meta.a").read_bytes()[place]

    return observe


def store_of(site: Site) -> str:
    return site.monitored.options.jetstream.store_dir


def kept_with_another_key(site: Site) -> object:
    """Observe whether a stream that was encrypted with the key `before` can be opened."""
    key_ring = KeyRing("before", CHACHA, os.urandom)
    files = account_files(OsDisk(), store_of(site), "$G", ListLog(), lambda: 1, key_ring)
    create_stream(files, WriterAtOnce(store_of(site)), StreamConfig("S"), 1).close()
    assert site.node.jetstream is not None
    for _ in site.node.jetstream.accounts["$G"].recover_steps():
        pass
    return ask(site.client(), "STREAM.NAMES", {}).get("total")


def acknowledged(site: Site) -> object:
    """Observe a PubAck without a sync: a node has no I/O thread."""
    client = site.client()
    ask(client, *stream(storage="file"))
    client.send(b"SUB inbox 1\r\nPUB s inbox 1\r\nx\r\n")
    return len(client.frames())


def scrubbed(site: Site) -> object:
    site.fixture.advance(seconds=11)
    return "scrub" in site.json("/jsz")


def puback(site: Site) -> object:
    client = site.client()
    ask(client, *stream())
    return client.request(b"s", b"x").payload


def ack_subject(site: Site) -> object:
    client = site.client()
    ask(client, *stream())
    ask(client, *consumer())
    client.request(b"s", b"x")
    return len(client.request(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"").reply.split(b"."))


def answers_of_responder(site: Site) -> object:
    """Observe how many of three answers to one request arrive; the last one is a minute late."""
    asking, responder = site.client(user="boss"), site.client(user="u")
    asking.send(b"SUB inbox.1 1\r\n")
    responder.send(b"SUB service 1\r\n")
    asking.send(b"PUB service inbox.1 0\r\n\r\n")
    responder.send(b"PUB inbox.1 0\r\n\r\n" * 2)
    site.fixture.advance(seconds=60)
    responder.send(b"PUB inbox.1 0\r\n\r\n")
    return len(asking.frames())


# The position of keys


def top(key: str, observe: Callable[[Site], object], beside: str = "") -> Effect:
    return Effect(f"{beside}\n{KEY}\n", key, observe)


def jetstream(key: str, observe: Callable[[Site], object]) -> Effect:
    return Effect(f'jetstream {{ store_dir: "{DIRECTORY}"\n{KEY} }}', key, observe)


def limits(key: str, observe: Callable[[Site], object]) -> Effect:
    return Effect(f'jetstream {{ store_dir: "{DIRECTORY}", limits {{ {KEY} }} }}', key, observe)


def authorization(key: str, observe: Callable[[Site], object], without: str = "") -> Effect:
    return Effect(f"authorization {{ {KEY} }}", key, observe, without)


USERS = "users: [{user: u, password: pw}]"


def account(key: str, observe: Callable[[Site], object], beside: str = USERS) -> Effect:
    return Effect(
        f'jetstream {{ store_dir: "{DIRECTORY}" }}\naccounts {{ A {{ {beside}\n{KEY} }} }}', key, observe
    )


def account_limits(key: str, observe: Callable[[Site], object]) -> Effect:
    return Effect(f"accounts {{ A {{ {USERS}, limits {{ {KEY} }} }} }}", key, observe)


def traces(site: Site) -> object:
    """Count, by destination, the traces of messages with a sampled `traceparent`."""
    found: Counter[bytes] = Counter()
    events = Mock(SessionEvents)
    events.traced.side_effect = lambda trace: found.update([trace.dest])
    site.fixture.node.events = events
    block = b"NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"
    site.client(user="u").send(b"HPUB a %d %d\r\n%b\r\n" % (len(block), len(block), block) * 100)
    return found


def account_trace(key: str) -> Effect:
    return Effect(f"accounts {{ A {{ {USERS}, msg_trace {{ dest: t\n{KEY} }} }} }}", key, traces)


def account_jetstream(key: str, observe: Callable[[Site], object]) -> Effect:
    text = f'jetstream {{ store_dir: "{DIRECTORY}" }}\naccounts {{ A {{ {USERS}, jetstream {{ {KEY} }} }} }}'
    return Effect(text, key, observe)


def user(key: str, observe: Callable[[Site], object], without: str = "") -> Effect:
    return Effect(f"authorization {{ users: [ {{ {KEY} }} ] }}", key, observe, without)


def permissions(key: str, observe: Callable[[Site], object]) -> Effect:
    boss = "{user: boss, password: pw}"
    text = (
        f"authorization {{ users: [ {boss}, {{ user: u, password: pw, permissions {{ subscribe: service\n{KEY}"
        " } } ] }"
    )
    return Effect(text, key, observe)


def responses(key: str) -> Effect:
    text = (
        "authorization { users: [ {user: boss, password: pw}, {user: u, password: pw, permissions {"
        f" allow_responses {{ {KEY} }} }} }} ] }}"
    )
    return Effect(text, key, answers_of_responder)


WITH_PASSWORD = b'{"user":"u","pass":"pw"}'
WITHOUT_PASSWORD = b'{"user":"u"}'
SECURE = "authorization { token: t }"
BIG = {"max_bytes": 2000}

TLS = "tls { cert_file: a, key_file: b }"
NODE_EFFECTS: dict[str, list[Effect]] = {
    "client_advertise": [top('client_advertise: "example.com:5"', info("host"))],
    "server_name": [top("server_name: me", info("server_name")), top("server_name: me", varz("server_name"))],
    "server_tags": [top("server_tags: [a]", varz("tags"))],
    "feature_flags": [jetstream("}\nfeature_flags { js_ack_fc_v2: true", ack_subject)],
    "server_metadata": [top("server_metadata {a: b}", varz("metadata"))],
    "http_base_path": [top("http_base_path: /x", lambda site: site.ask("/x/varz").status)],
    "max_payload": [top("max_payload: 5", answer(b"PUB a 6\r\nabcdef\r\n"))],
    "max_pending": [top("max_pending: 10000", pending_limit, "max_payload: 5000")],
    "max_control_line": [top("max_control_line: 200", answer(b"SUB " + b"a" * 300 + b" 1\r\nPING\r\n"))],
    "max_connections": [top("max_connections: 1", second_client)],
    "max_subscriptions": [top("max_subscriptions: 1", answer(b"SUB a 1\r\nSUB b 2\r\n"))],
    "max_sub_tokens": [top("max_sub_tokens: 2", answer(b"SUB a.b.c 1\r\n"))],
    "ping_interval": [top("ping_interval: 5s", pings(20))],
    "ping_max": [top("ping_max: 1", pings(25), "ping_interval: 10s")],
    "write_deadline": [top("write_deadline: 2s", write_deadline)],
    "no_header_support": [top("no_header_support: true", info("headers"))],
    "no_fast_producer_stall": [top("no_fast_producer_stall: true", stalls, "max_pending: 1MB")],
    "max_closed_clients": [top("max_closed_clients: 1", closed_clients)],
    "disable_sublist_cache": [top("disable_sublist_cache: true", cached_routes)],
    "authorization": [top(SECURE, info("auth_required"))],
    "no_auth_user": [top("no_auth_user: u", let_in(b"{}"), f"accounts {{ A {{ {USERS} }} }}")],
    "allow_non_tls": [top("allow_non_tls: true", info("tls_available"), TLS)],
    "tls/timeout": [Effect("tls { cert_file: a, key_file: b, <<key>> }", "timeout: 7", varz("tls_timeout"))],
    "accounts": [top("accounts { A {} }", lambda site: site.json("/accountz")["accounts"])],
    "system_account": [top("system_account: OPS", varz("system_account"), "accounts { OPS {} }")],
    "operator": [
        top(f"operator: {operator_token(OPERATOR)}\nresolver: MEMORY", info("auth_required")),
    ],
    "trusted_keys": [top(f"{TRUSTED}\n{PRELOAD}", info("auth_required"))],
    "resolver": [top(f"resolver: MEMORY\ntrusted_keys: {OPERATOR.public}", info("auth_required"))],
    "resolver_preload": [top(PRELOAD, let_in(BY_TOKEN), TRUSTED)],
    "resolver_pinned_accounts": [
        top(f"resolver_pinned_accounts: [{OTHER.public}]", let_in(BY_TOKEN), f"{TRUSTED}\n{PRELOAD}")
    ],
    "default_sentinel": [
        top(SENTINEL, let_in(b"{}"), f"operator: {operator_token(OPERATOR)}\nresolver: MEMORY\n{PRELOAD}")
    ],
    "resolver/type": [from_directory("type: cache", files_after(0), "limit: 1, ", "type: full")],
    "resolver/dir": [
        Effect(
            f"{TRUSTED.partition(chr(10))[0]}\nresolver {{ type: full, {KEY} }}\n{PRELOAD}",
            f'dir: "{DIRECTORY}/a"',
            lambda site: os.path.basename(directory_of(site).path),
            f'dir: "{DIRECTORY}/b"',
        )
    ],
    "resolver/allow_delete": [from_directory("allow_delete: true", files_after_removal, "type: full, ")],
    "resolver/hard_delete": [
        from_directory("hard_delete: true", files_after_removal, "type: full, allow_delete: true, ")
    ],
    "resolver/limit": [from_directory("limit: 1", files_after(0), "type: full, ")],
    "resolver/ttl": [from_directory("ttl: 5s", files_after(7), "type: cache, ")],
    "resolver/interval": [from_directory("interval: 2s", changed_outside, "type: full, ")],
    "resolver/timeout": [from_directory("timeout: 1s", slow_fetch, "type: full, ")],
    "authorization/auth_callout": [
        Effect(
            f"{APP}authorization {{ users: [{{user: s, password: pw}}]\n{KEY} }}",
            f"auth_callout {{ {ISSUER} }}",
            asked("app"),
        )
    ],
    "authorization.auth_callout/issuer": [
        callout("auth_users: [s], ", asked("x"), f"issuer: {OTHER.public}", f"issuer: {ACCOUNT.public}")
    ],
    "authorization.auth_callout/account": [callout(f"{ISSUER}, ", asked("x"), "account: APP")],
    "authorization.auth_callout/auth_users": [
        callout(f"issuer: {OTHER.public}, ", asked("app"), "auth_users: [s, app]", "auth_users: [s]")
    ],
    "authorization.auth_callout/xkey": [
        callout(f"{ISSUER}, ", asked("x"), f"xkey: {CurveKeyPair(b'x' * 32).public}")
    ],
    "authorization.auth_callout/allowed_accounts": [
        callout(f"{ISSUER}, ", asked("app"), "allowed_accounts: [OTHER]")
    ],
    "users.*/allowed_connection_types": [
        Effect(
            f"authorization {{ users: [{{user: u, password: pw, {KEY}}}] }}",
            "allowed_connection_types: [WEBSOCKET]",
            let_in(b'{"user":"u","pass":"pw"}'),
        )
    ],
    "users.*/proxy_required": [
        Effect(
            f"authorization {{ users: [{{user: u, password: pw, {KEY}}}] }}",
            "proxy_required: true",
            let_in(b'{"user":"u","pass":"pw"}'),
        )
    ],
    "authorization/proxy_required": [
        Effect(f"authorization {{ token: t, {KEY} }}", "proxy_required: true", let_in(b'{"auth_token":"t"}'))
    ],
    "proxies": [top(f"proxies {{ trusted: [{{key: {OPERATOR.public}}}] }}", info_of_anybody("nonce"))],
    "proxies/trusted": [
        Effect(f"proxies {{ {KEY} }}", f"trusted: [{{key: {OPERATOR.public}}}]", info_of_anybody("nonce"))
    ],
    "proxies.trusted.*/key": [
        Effect(
            f"proxies {{ trusted: [ {{ {KEY} }} ] }}",
            f"key: {OPERATOR.public}",
            varz("proxies"),
            f"key: {OTHER.public}",
        )
    ],
    "no_system_account": [top("no_system_account: true", varz("system_account"))],
    "jetstream": [top(f'jetstream {{ store_dir: "{DIRECTORY}" }}', info("jetstream"))],
    "store_dir": [
        Effect(
            f"jetstream: enabled\n{KEY}",
            f'store_dir: "{DIRECTORY}/a"',
            stored_in("a"),
            f'jetstream {{ store_dir: "{DIRECTORY}/b" }}',
        )
    ],
    "jetstream/enabled": [jetstream("enabled: false", info("jetstream"))],
    "jetstream/store_dir": [
        Effect(
            f"jetstream {{ {KEY} }}",
            f'store_dir: "{DIRECTORY}/a"',
            stored_in("a"),
            f'store_dir: "{DIRECTORY}/b"',
        )
    ],
    "jetstream/max_mem": [jetstream("max_mem: 1000", api(stream(**BIG)))],
    "jetstream/max_file": [jetstream("max_file: 1000", api(stream(storage="file", **BIG)))],
    "jetstream/sync_interval": [
        jetstream("sync_interval: always", acknowledged),
        jetstream("sync_interval: 5s", jsz("config")),
    ],
    "jetstream/sync_always": [jetstream("sync_always: true", acknowledged)],
    "jetstream/scrub_rate": [jetstream("scrub_rate: 0", scrubbed)],
    "jetstream/domain": [jetstream("domain: hub", puback), jetstream("domain: hub", info("domain"))],
    "jetstream/key": [jetstream("key: secret", kept(slice(11, 12)))],
    "jetstream/prev_key": [jetstream("key: now, prev_key: before", kept_with_another_key)],
    "jetstream/cipher": [jetstream("key: secret, cipher: aes", kept(slice(32, 33)))],
    "jetstream/unique_tag": [jetstream("unique_tag: az", jsz("config"))],
    "jetstream/strict": [jetstream("strict: false", api(stream(no_such_field=1)))],
    "jetstream/request_queue_limit": [jetstream("request_queue_limit: 2", flooded("STREAM.DELETE.S"))],
    "jetstream/info_queue_limit": [jetstream("info_queue_limit: 2", flooded("STREAM.INFO.S"))],
    "jetstream/limits": [jetstream("limits { max_ack_pending: 7 }", jsz("limits"))],
    "jetstream.limits/max_ack_pending": [
        limits("max_ack_pending: 7", api(stream(), consumer(max_ack_pending=8)))
    ],
    "jetstream.limits/max_request_batch": [
        limits("max_request_batch: 5", api(stream(), consumer(max_batch=6)))
    ],
    "jetstream.limits/max_ha_assets": [limits("max_ha_assets: 5", jsz("limits"))],
    "jetstream.limits/duplicate_window": [
        limits("duplicate_window: 1s", api(stream(duplicate_window=10_000_000_000)))
    ],
    "jetstream.limits/default_max_consumers": [
        limits("default_max_consumers: 1", api(stream(), consumer("A"), consumer("B")))
    ],
    "jetstream.limits/batch": [limits("batch { max_msgs: 1 }", batched(("a", 1), ("a", 2)))],
    "jetstream.limits.batch/max_inflight_per_stream": [
        limits("batch { max_inflight_per_stream: 1 }", batched(("a", 1), ("b", 1)))
    ],
    "jetstream.limits.batch/max_inflight_total": [
        limits("batch { max_inflight_total: 1 }", batched(("a", 1), ("b", 1)))
    ],
    "jetstream.limits.batch/max_msgs": [limits("batch { max_msgs: 1 }", batched(("a", 1), ("a", 2)))],
    "jetstream.limits.batch/timeout": [limits('batch { timeout: "1s" }', batched(("a", 1), ("a", 2)))],
    "authorization/user": [authorization("user: u", let_in(b"{}"))],
    "authorization/password": [authorization("user: u, password: pw", let_in(WITHOUT_PASSWORD), "user: u")],
    "authorization/token": [authorization("token: t", let_in(b"{}"))],
    "authorization/timeout": [Effect(f"authorization {{ token: t, {KEY} }}", "timeout: 10s", auth_deadline)],
    "authorization/users": [authorization(USERS, let_in(b"{}"))],
    "authorization/default_permissions": [
        Effect(
            f"authorization {{ {USERS}\n{KEY} }}",
            "default_permissions { publish: ok }",
            answer(b"PUB a 0\r\n\r\n", "u"),
        )
    ],
    "accounts.*/users": [account(USERS, let_in(b"{}"), "")],
    "accounts.*/jetstream": [account("jetstream: enabled", api(("INFO", {}), user="u"))],
    "accounts.*/default_permissions": [
        account("default_permissions { publish: ok }", answer(b"PUB a 0\r\n\r\n", "u"))
    ],
    "accounts.*/limits": [account("limits { max_payload: 5 }", answer(b"PUB a 6\r\nabcdef\r\n", "u"))],
    "accounts.*/msg_trace": [account("msg_trace: t", traces)],
    "accounts.*.msg_trace/dest": [account_trace("dest: t.2")],
    "accounts.*.msg_trace/sampling": [account_trace("sampling: 5")],
    "accounts.*.limits/max_connections": [
        account_limits("max_connections: 1", lambda site: second_client(site, "u"))
    ],
    "accounts.*.limits/max_subscriptions": [
        account_limits("max_subscriptions: 1", answer(b"SUB a 1\r\nSUB b 2\r\n", "u"))
    ],
    "accounts.*.limits/max_payload": [
        account_limits("max_payload: 5", answer(b"PUB a 6\r\nabcdef\r\n", "u"))
    ],
    "accounts.*.jetstream/max_mem": [account_jetstream("max_mem: 1000", api(stream(**BIG), user="u"))],
    "accounts.*.jetstream/max_file": [
        account_jetstream("max_file: 1000", api(stream(storage="file", **BIG), user="u"))
    ],
    "accounts.*.jetstream/max_streams": [
        account_jetstream("max_streams: 1", api(stream("S"), stream("T"), user="u"))
    ],
    "accounts.*.jetstream/max_consumers": [
        account_jetstream("max_consumers: 1", api(stream(), consumer("A"), consumer("B"), user="u"))
    ],
    "accounts.*.jetstream/max_bytes_required": [
        account_jetstream("max_bytes_required: true", api(stream(), user="u"))
    ],
    "accounts.*.jetstream/mem_max_stream_bytes": [
        account_jetstream("mem_max_stream_bytes: 1000", api(stream(**BIG), user="u"))
    ],
    "accounts.*.jetstream/disk_max_stream_bytes": [
        account_jetstream("disk_max_stream_bytes: 1000", api(stream(storage="file", **BIG), user="u"))
    ],
    "accounts.*.jetstream/max_ack_pending": [
        account_jetstream("max_ack_pending: 5", api(stream(), consumer(max_ack_pending=6), user="u"))
    ],
    "users.*/user": [user("user: u, password: pw", let_in(WITH_PASSWORD), "user: v, password: pw")],
    "users.*/password": [user("user: u, password: pw", let_in(WITHOUT_PASSWORD), "user: u")],
    "users.*/nkey": [
        user(f"nkey: {Nkey('owner').public}", info_of_anybody("nonce"), "user: u, password: pw")
    ],
    "users.*/permissions": [
        user(
            "user: u, password: pw, permissions { publish: ok }",
            answer(b"PUB a 0\r\n\r\n", "u"),
            "user: u, password: pw",
        )
    ],
    "permissions/publish": [permissions("publish: ok", answer(b"PUB a 0\r\n\r\n", "u"))],
    "permissions/subscribe": [permissions("subscribe: b", answer(b"SUB b 1\r\n", "u"))],
    "permissions/allow_responses": [
        permissions("allow_responses: true", answers_of_responder),
        permissions("publish: ok, allow_responses: true", answers_of_responder),
    ],
    "permissions.allow_responses/max": [responses("max: 2")],
    "permissions.allow_responses/expires": [responses('max: 3, expires: "10s"')],
}
