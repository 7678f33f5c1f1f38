"""Attacks with extreme numbers, times, depths and lengths; each request must be answered."""

from __future__ import annotations

import json
import time

from attacks.attack import Victim, attack
from attacks.client import Client

CREATE = "$JS.API.STREAM.CREATE.N"
CONSUMER = "$JS.API.CONSUMER.DURABLE.CREATE.N.c"
EXTREMES = (
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1e308",
)
TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "2300-01-01T00:00:00Z",
    "1677-01-01T00:00:00Z",
)
ONE_ANSWER_S = 2.0


def _each(victim: Victim, calls: list[tuple[str, object]]) -> None:
    """Send requests one by one, and wait up to ONE_ANSWER_S for each answer; count the answers."""
    client = victim.client()
    for subject, body in calls:
        client.deadline = time.monotonic() + ONE_ANSWER_S
        answered = client.request(subject, body) is not None
        victim.count(1, int(answered))
        if not answered:
            victim.note(f"no answer: {subject} {_end(body)}")
        if client.closed:
            client = victim.client()


def _end(body: object) -> str:
    """Return the end of a request's body, which contains the hostile option."""
    return (body.decode(errors="replace") if isinstance(body, bytes) else str(body))[-100:]


def _publish(victim: Victim, client: Client, subject: str, headers: bytes, body: bytes = b"") -> None:
    client.deadline = time.monotonic() + ONE_ANSWER_S
    answered = client.ask([client.publish(subject, headers, body)])
    victim.count(1, answered)
    if not answered:
        victim.note(f"no answer: publish with {headers[:100]!r}")


@attack("subject_delete_marker_ttl of 2^62, then a publish with Nats-TTL: 5", restart=True)
def marker_ttl(victim: Victim) -> None:
    config = {
        "name": "N",
        "subjects": ["n"],
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "max_age": 10**9,
    }
    _each(victim, [(CREATE, {**config, "subject_delete_marker_ttl": 2**62})])
    client = victim.client()
    _publish(victim, client, "n", b"Nats-TTL: 5\r\n")
    _each(victim, [("$JS.API.STREAM.INFO.N", None)])


@attack("a stream with a subject of 150,000 tokens, then its deletion", config="max_payload: 8MB\n")
def deep_subject(victim: Victim) -> None:
    subject = ".".join(["a"] * 150_000)
    _each(victim, [(CREATE, {"name": "N", "subjects": [subject]}), ("$JS.API.STREAM.DELETE.N", None)])


@attack("Nats-TTL: 9000000000, then ordinary publishes", restart=True)
def message_ttl(victim: Victim) -> None:
    victim.stream("N", ["n"], allow_msg_ttl=True)
    client = victim.client()
    for ttl in (b"9000000000", b"9223372036854775807", b"-1", b"1e9", b"never", b"2562047h", b"9" * 400):
        _publish(victim, client, "n", b"Nats-TTL: " + ttl + b"\r\n")
    for _ in range(20):
        _publish(victim, client, "n", b"A: b\r\n")


@attack("JSON 100,000 levels deep, and numbers of 5,000 digits")
def deep_json(victim: Victim) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    nested = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    digits = b"9" * 5_000
    bodies = [
        deep,
        nested,
        b'{"name":"N","metadata":' + nested + b"}",
        b'{"name":"N","max_msgs":' + digits + b"}",
    ]
    subjects = [
        CREATE,
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.INFO.N",
        CONSUMER,
        "$JS.API.CONSUMER.MSG.NEXT.N.c",
    ]
    victim.stream("N", ["n"])
    _each(victim, [(subject, body) for subject in subjects[:4] for body in bodies])
    _each(victim, [("$JS.API.STREAM.INFO.N", b'{"offset":' + digits + b"}")])


@attack("streams with 2^63, -2^63, 2^64 and 1e308 in every limit", restart=True)
def stream_limits(victim: Victim) -> None:
    names = (
        "max_msgs max_bytes max_age max_msg_size max_msgs_per_subject max_consumers num_replicas duplicate_window"
        " first_seq subject_delete_marker_ttl"
    ).split()
    calls: list[tuple[str, object]] = []
    for name in names:
        for number in EXTREMES:
            calls.append((CREATE, f'{{"name":"N","subjects":["n"],"{name}":{number}}}'.encode()))
            calls.append(("n", b"x"))
            calls.append(("$JS.API.STREAM.INFO.N", b""))
            calls.append(("$JS.API.STREAM.DELETE.N", b""))
    _each(victim, calls)
    _each(victim, [(CREATE, {"name": "N", "subjects": ["n"], "first_seq": 2**64 - 2}), *[("n", b"x")] * 4])


@attack("consumers with extreme limits and times", restart=True)
def consumer_limits(victim: Victim) -> None:
    victim.stream("N", ["n"], storage="file")
    names = (
        "ack_wait max_deliver max_ack_pending max_waiting inactive_threshold max_batch max_expires max_bytes"
        " rate_limit_bps idle_heartbeat num_replicas"
    ).split()
    bodies = [f'"{name}":{number}' for name in names for number in EXTREMES]
    bodies += [f'"pause_until":"{when}"' for when in TIMES]
    bodies += [f'"deliver_policy":"by_start_time","opt_start_time":"{when}"' for when in TIMES]
    bodies += [f'"deliver_policy":"by_start_sequence","opt_start_seq":{number}' for number in EXTREMES]
    bodies += ['"max_deliver":300,"backoff":[' + ",".join(["9223372036854775807"] * 200) + "]"]
    calls: list[tuple[str, object]] = []
    for body in bodies:
        config = f'{{"stream_name":"N","config":{{"durable_name":"c","ack_policy":"explicit",{body}}}}}'
        calls.append((CONSUMER, config.encode()))
        calls.append(("n", b"x"))
        calls.append(("$JS.API.CONSUMER.MSG.NEXT.N.c", b'{"batch":1,"no_wait":true}'))
        calls.append(("$JS.API.CONSUMER.INFO.N.c", b""))
        calls.append(("$JS.API.CONSUMER.DELETE.N.c", b""))
    _each(victim, calls)


@attack("pull requests, gets and purges with extreme numbers")
def request_numbers(victim: Victim) -> None:
    victim.stream("N", ["n"], allow_direct=True, max_msgs_per_subject=5)
    client = victim.client()
    client.ask([client.call("n", b"x")] * 20)
    config = {"stream_name": "N", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    victim.demand(client, CONSUMER, config)
    calls: list[tuple[str, object]] = []
    for number in EXTREMES:
        for name in ("batch", "max_bytes"):
            body = f'{{"no_wait":true,"{name}":{number}}}'
            calls.append(("$JS.API.CONSUMER.MSG.NEXT.N.c", body.encode()))
        for name in ("seq", "batch", "max_bytes"):
            body = f'{{"next_by_subj":"n","{name}":{number}}}'
            calls.append(("$JS.API.DIRECT.GET.N", body.encode()))
            calls.append(("$JS.API.STREAM.MSG.GET.N", f'{{"{name}":{number}}}'.encode()))
        for name in ("seq", "keep"):
            calls.append(("$JS.API.STREAM.PURGE.N", f'{{"{name}":{number}}}'.encode()))
        calls.append(("$JS.API.STREAM.MSG.DELETE.N", f'{{"seq":{number}}}'.encode()))
        calls.append(("$JS.API.STREAM.LIST", f'{{"offset":{number}}}'.encode()))
        calls.append(("$JS.API.CONSUMER.UNPIN.N.c", f'{{"group":{number}}}'.encode()))
    for when in TIMES:
        body = json.dumps({"multi_last": ["n"], "up_to_time": when}).encode()
        calls.append(("$JS.API.DIRECT.GET.N", body))
        calls.append(("$JS.API.CONSUMER.PAUSE.N.c", json.dumps({"pause_until": when}).encode()))
    _each(victim, calls)


@attack("publishes with hostile header values", restart=True)
def header_values(victim: Victim) -> None:
    victim.stream("N", ["n"], allow_msg_ttl=True, allow_rollup_hdrs=True)
    client = victim.client()
    names = (
        "Nats-Msg-Id Nats-Expected-Last-Sequence Nats-Expected-Last-Subject-Sequence Nats-Expected-Last-Msg-Id"
        " Nats-Expected-Stream Nats-Rollup Nats-TTL Nats-Batch-Id Nats-Batch-Sequence Nats-Batch-Commit Nats-Incr"
        " Nats-Schedule Nats-Schedule-Target Nats-Schedule-TTL Nats-Required-Api-Level Nats-Stream-Source"
    ).split()
    values = [b"9" * 5_000, b"-9223372036854775809", b"\xff\xfe\x00", b"1e308", b"a" * 60_000, b""]
    values.append(b"@at 9999-12-31T23:59:59Z")
    for name in names:
        for value in values:
            _publish(victim, client, "n", name.encode() + b": " + value + b"\r\n", b"x")
            if client.closed:
                client = victim.client()
    _publish(victim, client, "n", b"A: b\r\n")
