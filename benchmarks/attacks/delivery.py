"""Attacks with consumers, acks, and streams that copy each other."""

from __future__ import annotations

import time

from attacks.api import STREAM
from attacks.attack import Victim, attack

NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.c"


def _with_consumer(victim: Victim) -> None:
    """Fill a stream and create a pull consumer whose max_ack_pending allows all messages."""
    victim.fill(100_000, 1_000)
    config = {
        "durable_name": "c",
        "ack_policy": "explicit",
        "max_ack_pending": 1_000_000,
        "max_waiting": 100_000,
    }
    body = {"stream_name": STREAM, "config": config}
    victim.demand(victim.client(), f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.c", body)


@attack("20,000 pulls with expires of 1 ns", setup=_with_consumer)
def short_pulls(victim: Victim) -> None:
    client = victim.client()
    victim.demand(client, f"$JS.API.STREAM.PURGE.{STREAM}")
    calls = [client.call(NEXT, b'{"batch":1,"expires":1}')] * 20_000
    victim.count(20_000, client.ask(calls))


@attack("100,000 pulls of one message with `no_wait`, pipelined", setup=_with_consumer)
def pull_flood(victim: Victim) -> None:
    client = victim.client()
    victim.count(100_000, client.ask([client.call(NEXT, b'{"batch":1,"no_wait":true}')] * 100_000))


@attack("300,000 acks with invalid tokens", setup=_with_consumer)
def unknown_acks(victim: Victim) -> None:
    client = victim.client()
    subject = b"PUB $JS.ACK.NATSLOAD.c.%d.%d.%d.1700000000000000000.0 4\r\n+ACK\r\n"
    for start in range(0, 300_000, 10_000):
        client.queue(b"".join(subject % (1 + n % 9, n * 7919, n) for n in range(start, start + 10_000)))
    client.queue(b"PUB $JS.ACK.NATSLOAD.c.%s 4\r\n+ACK\r\n" % b".".join([b"9" * 400] * 5))
    victim.count(1, int(client.fence()))


@attack("a NAK with a delay of 1 ms for every delivery, for 5 s", setup=_with_consumer)
def nak_loop(victim: Victim) -> None:
    client = victim.client()
    end = time.monotonic() + 5
    naks = 0
    while time.monotonic() < end:
        wanted = client.count + 2_000
        client.queue(client.call(NEXT, b'{"batch":2000,"expires":1000000000}'))
        client.run(lambda wanted=wanted: client.count >= wanted or time.monotonic() > end)  # type: ignore[misc]
        replies = [reply for _, reply, _ in client.messages if reply]
        client.messages.clear()
        naks += len(replies)
        client.queue(b"".join(b'PUB %s 22\r\n-NAK {"delay":1000000}\r\n' % reply for reply in replies))
    victim.note(f"{naks:,} naks")
    victim.count(1, int(client.fence()))


@attack(
    "50,000 messages whose ack_wait of 10 ms expires again and again, for 5 s",
    setup=lambda v: v.fill(50_000, 10),
)
def redelivery(victim: Victim) -> None:
    client = victim.client()
    # the consumer needs a subscription to exactly this subject
    client.queue(b"SUB push%s 2\r\n" % client.inbox)
    config = {
        "durable_name": "p",
        "deliver_subject": f"push{client.inbox.decode()}",
        "ack_policy": "explicit",
        "ack_wait": 10_000_000,
        "max_ack_pending": -1,
    }
    victim.demand(
        client, f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.p", {"stream_name": STREAM, "config": config}
    )
    victim.linger([client], 5.0)
    victim.note(f"{client.count:,} deliveries")
    victim.count(1, int(client.fence()))


def _bucket(victim: Victim) -> None:
    """Create a bucket with two values for each of 100,000 keys."""
    victim.stream("KV_b", ["$KV.b.>"], max_msgs_per_subject=64, allow_direct=True, allow_rollup_hdrs=True)
    client = victim.client()
    calls = [client.call(f"$KV.b.key.{number % 100_000}", b"value") for number in range(200_000)]
    if client.ask(calls, 4_000) < len(calls):
        raise RuntimeError("the bucket was not filled")


@attack("30 watchers of all 100,000 keys of a bucket with a history of 64", setup=_bucket)
def watchers(victim: Victim) -> None:
    clients = victim.clients(30)
    for client in clients:
        # the consumer needs a subscription to exactly this subject
        client.queue(b"SUB push%s 2\r\n" % client.inbox)
        config = (
            b'{"deliver_subject":"push%s","ack_policy":"none","deliver_policy":"last_per_subject","mem_storage":true,'
            b'"filter_subject":"$KV.b.>","flow_control":false}' % client.inbox
        )
        body = b'{"stream_name":"KV_b","config":%s}' % config
        client.queue(client.call("$JS.API.CONSUMER.CREATE.KV_b", body))
    victim.drive(clients, lambda: all(client.count > 100_000 for client in clients))
    victim.count(30 * 100_001, sum(min(client.count, 100_001) for client in clients))


@attack("an object of 200,000 chunks of one byte, then its purge")
def tiny_chunks(victim: Victim) -> None:
    victim.stream("OBJ_o", ["$O.o.C.>", "$O.o.M.>"], allow_rollup_hdrs=True, discard="new", allow_direct=True)
    client = victim.client()
    victim.count(200_000, client.ask([client.call("$O.o.C.chunk", b"x")] * 200_000, 4_000))
    victim.count(1, client.ask([client.publish("$O.o.M.meta", b"Nats-Rollup: sub\r\n", b"{}")]))
    victim.count(1, client.ask([client.call("$JS.API.STREAM.PURGE.OBJ_o", b'{"filter":"$O.o.C.chunk"}')]))


def _delete_ab(victim: Victim) -> None:
    client = victim.client()
    client.ask([client.call("$JS.API.STREAM.DELETE.A"), client.call("$JS.API.STREAM.DELETE.B")])


@attack("two streams that republish into each other, for 3 s", undo=_delete_ab)
def republish_loop(victim: Victim) -> None:
    client = victim.client()
    for name, other in (("A", "B"), ("B", "A")):
        republish = {"src": ">", "dest": f"{other.lower()}.>"}
        body = {"name": name, "subjects": [f"{name.lower()}.>"], "republish": republish, "max_msgs": 1_000}
        client.request(f"$JS.API.STREAM.CREATE.{name}", body)
    client.ask([client.call("a.x", b"x")])
    victim.linger([client], 3.0)
    answer = client.request("$JS.API.STREAM.INFO.A")
    if answer is not None and "state" in answer:
        victim.note(f"stream A is at sequence {answer['state']['last_seq']:,}")
    victim.count(1, int(answer is not None))


@attack("three streams that source each other in a circle, for 3 s", undo=_delete_ab)
def source_circle(victim: Victim) -> None:
    client = victim.client()
    names = ("A", "B", "C")
    for name in names:
        client.request(
            f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.x"], "max_msgs": 1_000}
        )
    for name, origin in zip(names, names[1:] + names[:1], strict=True):
        body = {"name": name, "subjects": [f"{name}.x"], "max_msgs": 1_000, "sources": [{"name": origin}]}
        client.request(f"$JS.API.STREAM.UPDATE.{name}", body)
    client.ask([client.call("A.x", b"x")] * 10)
    victim.linger([client], 3.0)
    answer = client.request("$JS.API.STREAM.INFO.A")
    if answer is not None and "state" in answer:
        victim.note(f"stream A is at sequence {answer['state']['last_seq']:,}")
    victim.count(1, int(answer is not None))


@attack("300 mirrors of one stream that come and go", setup=lambda v: v.fill(1_000, 10))
def mirrors(victim: Victim) -> None:
    client = victim.client()
    calls = []
    for number in range(300):
        body = {"name": f"M{number}", "mirror": {"name": STREAM}, "storage": "memory"}
        calls.append(client.call(f"$JS.API.STREAM.CREATE.M{number}", body))
    victim.count(len(calls), client.ask(calls))
    calls = [client.call(f"$JS.API.STREAM.DELETE.M{number}") for number in range(300)]
    victim.count(len(calls), client.ask(calls))
