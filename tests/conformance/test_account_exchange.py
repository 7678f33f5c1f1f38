"""Services across accounts, as clients see them, are those of nats-server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.exchange import AccountClient, masked

pytestmark = needs_peer
SERVICES = """
accounts {
    SYS { users: [{user: sys, password: sys}] }
    A {
        users: [{user: a, password: a}]
        exports: [
            {service: "help"}
            {service: "many.*.*", response_type: stream}
            {service: "chunk", response_type: chunked}
            {service: "brief", response_threshold: "50ms"}
            {service: "all.>"}
            {service: "private", accounts: [B]}
            {service: "of.*", account_token_position: 2}
        ]
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {service: {account: A, subject: "help"}, to: "l.help"}
            {service: {account: A, subject: "many.*.*"}, to: "m.$2.$1"}
            {service: {account: A, subject: "chunk"}, share: true}
            {service: {account: A, subject: "brief"}}
            {service: {account: A, subject: "all.>"}}
            {service: {account: A, subject: "private"}}
            {service: {account: A, subject: "of.B"}}
        ]
        exports: [{service: "chained"}, {service: "l.help"}]
        mappings: {"short": "l.help"}
    }
    C {
        users: [{user: c, password: c}]
        imports: [{service: {account: B, subject: "l.help"}, to: "far"}]
    }
}
system_account: SYS
"""


def clients(server: ServerProcess) -> tuple[AccountClient, AccountClient]:
    """Return the service's client, subscribed to everything, and a client that sends requests."""
    service, client = AccountClient(server.port, "a"), AccountClient(server.port, "b", name="bee", lang="x")
    service.do(b"SUB help 11", b"SUB many.> 12", b"SUB chunk 13", b"SUB brief 14", b"SUB all.> 15")
    service.do(b"SUB private 16", b"SUB of.* 17")
    return service, client


def request_and_response(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB l.help _INBOX.b.1 2\r\nhi")
    asked = service.next()
    service.do(b"PUB %b 2\r\nok" % asked[1])
    return asked[0], asked[2:], asked[1][:4], client.seen()


def second_response_to_a_singleton(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB l.help _INBOX.b.1 2\r\nhi")
    reply = service.next()[1]
    service.do(b"PUB %b 2\r\nok" % reply, b"PUB %b 2\r\nno" % reply)
    return client.seen(), service.seen()


def responses_of_a_stream(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB m.one.two _INBOX.b.1 2\r\nhi")
    asked = service.next()
    service.do(*(b"PUB %b %d\r\n%b" % (asked[1], len(part), part) for part in (b"1", b"2", b"", b"4")))
    return asked[0], asked[2:], client.seen()


def shared_client(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB chunk _INBOX.b.1 2\r\nhi")
    asked = service.next()
    return asked[0], asked[2:]


def forged_request_info(server: ServerProcess) -> Any:
    service, client = clients(server)
    block = b'NATS/1.0\r\nX: y\r\nNats-Request-Info: {"acc":"forged"}\r\nZ: 1\r\n\r\n'
    client.do(b"HPUB l.help _INBOX.b.1 %d %d\r\n%bhi" % (len(block), len(block) + 2, block))
    return service.next()[2:]


def without_reply(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB l.help 2\r\nhi")
    return service.next(), client.seen()


def nobody_answers(server: ServerProcess) -> Any:
    service, client = clients(server)
    service.do(b"UNSUB 11")
    client.do(b"PUB l.help _INBOX.b.1 2\r\nhi")
    return client.seen()


def reply_of_a_client_is_reserved(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB l.help _R_.abc.def 2\r\nhi")
    return client.seen(), service.seen()


def response_from_the_wrong_account(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB m.one.two _INBOX.b.1 2\r\nhi")
    reply = service.next()[1]
    other = AccountClient(server.port, "c")
    other.do(b"PUB %b _INBOX.c.1 6\r\nforged" % reply)
    client.do(b"PUB %b _INBOX.b.2 6\r\nforged" % reply)
    return client.seen(), other.seen()


def unknown_token(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB m.one.two _INBOX.b.1 2\r\nhi")
    reply = service.next()[1]
    guess = reply[:-1] + (b"0" if reply[-1:] != b"0" else b"1")
    service.do(b"PUB %b _INBOX.a.1 6\r\nforged" % guess)
    return client.seen(), service.seen()


def response_with_a_reply(server: ServerProcess) -> Any:
    service, client = clients(server)
    service.do(b"SUB back 19")
    client.do(b"PUB chunk _INBOX.b.1 2\r\nhi")
    service.do(b"PUB %b back 3\r\none" % service.next()[1])
    answer = client.next()
    client.do(b"PUB %b 4\r\nback" % answer[1])
    return answer[0], answer[1][:4], answer[2:], service.seen(), client.seen()


def over_two_accounts(server: ServerProcess) -> Any:
    service, _ = clients(server)
    far = AccountClient(server.port, "c")
    far.do(b"PUB far _INBOX.c.1 2\r\nhi")
    asked = service.next()
    service.do(b"PUB %b 2\r\nok" % asked[1])
    return asked[0], asked[2:], far.seen()


def over_two_accounts_without_service(server: ServerProcess) -> Any:
    far = AccountClient(server.port, "c")
    far.do(b"PUB far _INBOX.c.1 2\r\nhi")
    return far.seen()


def by_a_mapping(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB short _INBOX.b.1 2\r\nhi")
    asked = service.next()
    service.do(b"PUB %b 2\r\nok" % asked[1])
    return asked[0], client.seen()


def private_services(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB private 1\r\n1", b"PUB of.B 1\r\n2", b"PUB of.C 1\r\n3")
    return service.seen()


def same_subjects(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"PUB all.a.b 1\r\n1", b"PUB all.c _INBOX.b.1 1\r\n2")
    first, second = service.next(), service.next()
    service.do(b"HPUB %b 12 14\r\nNATS/1.0\r\n\r\nok" % second[1])
    return first, second[0], client.seen()


def local_subscribers_too(server: ServerProcess) -> Any:
    service, client = clients(server)
    client.do(b"SUB l.> 21", b"PUB l.help _INBOX.b.1 2\r\nhi")
    return service.next()[0], client.seen()


def queue_group_of_services(server: ServerProcess) -> Any:
    service, client = clients(server)
    service.do(b"UNSUB 11", b"SUB help workers 31", b"SUB help workers 32")
    client.do(*[b"PUB l.help 1\r\n1"] * 5)
    return sorted(service.next()[3] for _ in range(5)), service.seen()


def client_without_headers(server: ServerProcess) -> Any:
    _, client = clients(server)
    plain = AccountClient(server.port, "a", headers=False, no_responders=False)
    plain.do(b"SUB help 11")
    client.do(b"PUB l.help 2\r\nhi")
    return plain.seen()


SCENES: list[Callable[[ServerProcess], Any]] = [
    request_and_response,
    second_response_to_a_singleton,
    responses_of_a_stream,
    shared_client,
    forged_request_info,
    without_reply,
    nobody_answers,
    reply_of_a_client_is_reserved,
    response_from_the_wrong_account,
    unknown_token,
    response_with_a_reply,
    over_two_accounts,
    over_two_accounts_without_service,
    by_a_mapping,
    private_services,
    same_subjects,
    local_subscribers_too,
    queue_group_of_services,
    client_without_headers,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_service_across_accounts_is_the_same(scene: Callable[[ServerProcess], Any], tmp_path: Path) -> None:
    peer, ours = of_both(tmp_path, SERVICES, scene)
    assert ours == peer


LATENCY = """
accounts {
    SYS { users: [{user: sys, password: sys}] }
    A {
        users: [{user: a, password: a}]
        exports: [
            {service: "slow", latency: {sampling: 100%, subject: "latency.slow"}, response_threshold: "300ms"}
            {service: "traced", latency: {sampling: headers, subject: "latency.traced"}}
        ]
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {service: {account: A, subject: "slow"}}
            {service: {account: A, subject: "traced"}, share: true}
        ]
    }
}
system_account: SYS
"""


def measured(server: ServerProcess) -> tuple[AccountClient, AccountClient, AccountClient]:
    """Return the clients of the service, of the requests and of the samples."""
    listener, service = AccountClient(server.port, "a"), AccountClient(server.port, "a")
    listener.do(b"SUB latency.> 41")
    service.do(b"SUB slow 11", b"SUB traced 12")
    return service, AccountClient(server.port, "b", name="bee"), listener


def sample_of_a_response(server: ServerProcess) -> Any:
    service, client, listener = measured(server)
    client.do(b"PUB slow _INBOX.b.1 2\r\nhi")
    asked = service.next()
    service.do(b"PUB %b 2\r\nok" % asked[1])
    return asked[1][-2:], listener.next()


def sample_without_reply(server: ServerProcess) -> Any:
    _, client, listener = measured(server)
    client.do(b"PUB slow 2\r\nhi")
    return listener.next()


def sample_of_a_timeout(server: ServerProcess) -> Any:
    _, client, listener = measured(server)
    client.do(b"PUB slow _INBOX.b.1 2\r\nhi")
    return listener.next()


def sample_of_lost_interest(server: ServerProcess) -> Any:
    _, client, listener = measured(server)
    client.do(b"SUB gone 51", b"PUB slow gone 2\r\nhi", b"UNSUB 51")
    return listener.next()


def sample_of_a_closed_client(server: ServerProcess) -> Any:
    _, client, listener = measured(server)
    client.do(b"PUB slow _INBOX.b.1 2\r\nhi")
    client.close()
    fields = json.loads(listener.next()[3])
    return fields["status"], fields["description"]


def sample_without_service(server: ServerProcess) -> Any:
    service, client, listener = measured(server)
    service.do(b"UNSUB 11")
    client.do(b"PUB slow _INBOX.b.1 2\r\nhi")
    return listener.next(), client.seen()


@pytest.mark.parametrize(
    "scene",
    [
        sample_of_a_response,
        sample_without_reply,
        sample_of_a_timeout,
        sample_of_lost_interest,
        sample_of_a_closed_client,
        sample_without_service,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_latency_sample_is_the_same(scene: Callable[[ServerProcess], Any], tmp_path: Path) -> None:
    peer, ours = of_both(tmp_path, LATENCY, scene)
    assert ours == peer


@pytest.mark.parametrize(
    "headers",
    [
        b"X-B3-Sampled: 1\r\nX-B3-TraceId: a\r\nX-B3-SpanId: b\r\nX-B3-ParentSpanId: c\r\n",
        b"X-B3-Sampled: 0\r\nX-B3-TraceId: a\r\n",
        b"X-B3-TraceId: a\r\n",
        b"b3: 1-2-1-4\r\n",
        b"b3: 1-2-0-4\r\n",
        b"b3: 0\r\n",
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: x\r\n",
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n",
        b"traceparent: 00-4bf9-ff\r\n",
        b"Uber-Trace-Id: a:b:c:1\r\nUberctx-X: y\r\n",
        b"Uber-Trace-Id: a:b:c:2\r\n",
        b"Other: x\r\n",
    ],
)
def test_tracing_headers_ask_for_samples(headers: bytes, tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        service, client, listener = measured(server)
        block = b"NATS/1.0\r\n" + headers + b"\r\n"
        client.do(b"HPUB traced _INBOX.b.1 %d %d\r\n%bhi" % (len(block), len(block) + 2, block))
        service.do(b"PUB %b 2\r\nok" % service.next()[1])
        client.do(b"PUB slow 2\r\nhi")  # the latency sample of this request is the last one
        samples = [json.loads(listener.next()[3])]
        while samples[-1]["status"] == 200:
            samples.append(json.loads(listener.next()[3]))
        return samples

    peer, ours = of_both(tmp_path, LATENCY, look)
    assert ours == peer


JETSTREAM = """
jetstream: {store_dir: "<<store>>"}
accounts {
    A {
        jetstream: enabled
        users: [{user: a, password: a}]
        exports: [
            {service: "$JS.API.>", response_type: stream}
            {service: "$JS.ACK.>"}
            {stream: "deliver.>"}
        ]
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {service: {account: A, subject: "$JS.API.>"}, to: "JS.A.API.>"}
            {service: {account: A, subject: "$JS.ACK.>"}}
            {stream: {account: A, subject: "deliver.>"}}
        ]
    }
}
"""


def filled(server: ServerProcess) -> tuple[AccountClient, AccountClient]:
    """Return clients of both accounts; the stream S of A has five messages."""
    owner, client = AccountClient(server.port, "a"), AccountClient(server.port, "b")
    owner.api("STREAM.CREATE.S", name="S", subjects=["o.*"])
    for number in range(5):
        owner.request(b"o.%d" % number, b"x%d" % number)
    return owner, client


def call(client: AccountClient, name: str, **body: Any) -> Any:
    """Call A's API from B."""
    text = json.dumps(body).encode() if body else b""
    return json.loads(masked(client.request(b"JS.A.API." + name.encode(), text)) or "{}")


def api_answers(server: ServerProcess) -> Any:
    _, client = filled(server)
    info = call(client, "STREAM.INFO.S")
    return (
        info["state"]["messages"],
        call(client, "STREAM.NAMES"),
        call(client, "STREAM.MSG.GET.S", seq=2),
        call(client, "STREAM.INFO.NONE"),
        call(client, "CONSUMER.NAMES.S"),
    )


def pull_and_ack(server: ServerProcess) -> Any:
    _, client = filled(server)
    config = {"name": "P", "durable_name": "P", "ack_policy": "explicit"}
    call(client, "CONSUMER.CREATE.S.P", stream_name="S", config=config)
    client.send(b'SUB pull 61\r\nPUB JS.A.API.CONSUMER.MSG.NEXT.S.P pull 11\r\n{"batch":3}\r\n')
    got = [client.next() for _ in range(3)]
    acked = client.request(got[0][1], b"+ACK")
    client.do(b"PUB %b 4\r\n+ACK" % got[1][1])
    info = call(client, "CONSUMER.INFO.S.P")
    seen = [(subject, masked(reply), payload) for subject, reply, _, payload in got]
    return seen, acked, info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]


def push(server: ServerProcess) -> Any:
    _, client = filled(server)
    receiver = AccountClient(server.port, "b", inbox=b"_INBOX.receiver")
    receiver.do(b"SUB deliver.q 62")
    config = {"name": "Q", "durable_name": "Q", "ack_policy": "explicit", "deliver_subject": "deliver.q"}
    call(client, "CONSUMER.CREATE.S.Q", stream_name="S", config=config)
    got = [receiver.next() for _ in range(5)]
    for _, reply, _, _ in got:
        client.request(reply, b"+ACK")
    info = call(client, "CONSUMER.INFO.S.Q")
    return [(subject, masked(reply), payload) for subject, reply, _, payload in got], info["ack_floor"][
        "stream_seq"
    ]


@pytest.mark.parametrize("scene", [api_answers, pull_and_ack, push], ids=lambda scene: scene.__name__)
def test_jetstream_across_accounts_is_the_same(scene: Callable[[ServerProcess], Any], tmp_path: Path) -> None:
    peer, ours = of_both(tmp_path, JETSTREAM, scene)
    assert ours == peer
