"""Attacks with many events due at one moment, and with requests whose cost depends on stored data."""

from __future__ import annotations

import time
from collections.abc import Callable

from attacks.api import MILLION, STREAM, million_subjects
from attacks.attack import Victim, attack
from attacks.client import Client

INFO = f"$JS.API.STREAM.INFO.{STREAM}"
UPDATE = f"$JS.API.STREAM.UPDATE.{STREAM}"
CONSUMER = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}."


def _until(
    victim: Victim, client: Client, subject: str, done: Callable[[dict[str, dict[str, int]]], bool]
) -> bool:
    """Send a request every 100 ms until `done` accepts the answer; return False if the deadline passes first."""
    while time.monotonic() < victim.deadline:
        answer = client.request(subject)
        if answer is not None and "error" not in answer and done(answer):
            return True
        victim.linger([client], 0.1)
    return False


def _delete(*names: str) -> Callable[[Victim], None]:
    """Return a function that deletes these streams."""

    def undo(victim: Victim) -> None:
        client = victim.client()
        client.ask([client.call(f"$JS.API.STREAM.DELETE.{name}") for name in names])

    return undo


def _config(**more: object) -> dict[str, object]:
    return {"name": STREAM, "subjects": ["load.>"], "allow_direct": True, **more}


def _empty(answer: dict[str, dict[str, int]]) -> bool:
    return answer["state"]["messages"] == 0


def _one_million(victim: Victim) -> None:
    victim.fill(MILLION, 1_000)


@attack("a million messages that expire at once because of max_age", setup=_one_million)
def expiry(victim: Victim) -> None:
    client = victim.client()
    victim.count(
        1, client.ask([client.call(UPDATE, _config(max_age=100_000_000, duplicate_window=100_000_000))])
    )
    victim.count(1, int(_until(victim, client, INFO, _empty)))


@attack(
    "200,000 messages whose TTLs end in the same second",
    setup=lambda v: v.stream("T", ["t.>"], allow_msg_ttl=True),
)
def ttl_together(victim: Victim) -> None:
    client = victim.client()
    calls = [client.publish(f"t.{number}", b"Nats-TTL: 2\r\n", b"x") for number in range(200_000)]
    victim.count(200_000, client.ask(calls, 4_000))
    victim.count(1, int(_until(victim, client, "$JS.API.STREAM.INFO.T", _empty)))


@attack(
    "100 direct gets of the last messages of 1,000 subjects each, and 10 of all subjects",
    setup=million_subjects,
)
def multi_last(victim: Victim) -> None:
    client = victim.client()
    some = ",".join(f'"load.{number:08}"' for number in range(1_000))
    bodies = [f'{{"multi_last":[{some}],"batch":1000}}'.encode()] * 100
    bodies += [b'{"multi_last":["load.>"],"batch":10}'] * 10
    client.queue(b"".join(client.call(f"$JS.API.DIRECT.GET.{STREAM}", body) for body in bodies))
    start = client.count
    client.run(lambda: client.count - start >= 100_110)
    victim.count(100_000, min(client.count - start, 100_000))


@attack(
    "1,000 gets in a million subjects, with wildcards that match no subject or the last one",
    setup=million_subjects,
)
def wildcard_gets(victim: Victim) -> None:
    client = victim.client()
    bodies = (
        b'{"last_by_subj":"*.nothing"}',
        b'{"last_by_subj":"load.*"}',
        b'{"next_by_subj":"*.nothing","seq":1}',
        b'{"next_by_subj":"*.00999999","seq":1}',
    )
    calls = [client.call(f"$JS.API.STREAM.MSG.GET.{STREAM}", bodies[number % 4]) for number in range(1_000)]
    victim.count(1_000, client.ask(calls))


@attack("100 consumers that start at the last message of each of a million subjects", setup=million_subjects)
def last_per_subject(victim: Victim) -> None:
    client = victim.client()
    config = {"ack_policy": "explicit", "deliver_policy": "last_per_subject", "filter_subject": "load.>"}
    calls = [
        client.call(
            f"{CONSUMER}c{number}",
            {"stream_name": STREAM, "config": {"durable_name": f"c{number}", **config}},
        )
        for number in range(100)
    ]
    victim.count(100, client.ask(calls))
    calls = [client.call(f"$JS.API.CONSUMER.DELETE.{STREAM}.c{number}") for number in range(100)]
    victim.count(100, client.ask(calls))


@attack("100 updates of the filter of a consumer on a million subjects", setup=million_subjects)
def filter_updates(victim: Victim) -> None:
    client = victim.client()

    def call(number: int) -> bytes:
        filters = ["load.*" if number % 2 else "load.00000001"]
        config = {"durable_name": "c", "ack_policy": "explicit", "filter_subjects": filters}
        return client.call(f"{CONSUMER}c", {"stream_name": STREAM, "config": config})

    victim.count(100, client.ask([call(number) for number in range(100)]))


def _delivered(victim: Victim, policy: str, msgs: int) -> tuple[Client, list[bytes]]:
    """Create a consumer, and fetch `msgs` messages without acknowledging them; return their ack subjects."""
    client = victim.client()
    config = {"durable_name": "c", "ack_policy": policy, "max_ack_pending": -1, "ack_wait": 600_000_000_000}
    victim.demand(client, f"{CONSUMER}c", {"stream_name": STREAM, "config": config})
    tokens: list[bytes] = []
    while len(tokens) < msgs:
        start = client.count
        client.queue(
            client.call(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.c", b'{"batch":50000,"expires":5000000000}')
        )
        if not client.run(lambda start=start: client.count - start >= 50_000):  # type: ignore[misc]
            raise RuntimeError("the messages did not come")
        tokens += [reply for _, reply, _ in client.messages if reply]
        client.messages.clear()
    return client, tokens


@attack("one ack of 500,000 messages (ack policy all)", setup=_one_million)
def ack_all(victim: Victim) -> None:
    client, tokens = _delivered(victim, "all", 500_000)
    victim.count(1, client.ask([b"PUB %s %s.1 4\r\n+ACK\r\n" % (tokens[-1], client.inbox)]))


@attack("500,000 acks in reverse order", setup=_one_million)
def acks_reversed(victim: Victim) -> None:
    client, tokens = _delivered(victim, "explicit", 500_000)
    client.queue(b"".join(b"PUB %s 4\r\n+ACK\r\n" % token for token in reversed(tokens)))
    client.fence()

    def acked(answer: dict[str, dict[str, int]]) -> bool:
        return answer["ack_floor"]["stream_seq"] == 500_000

    victim.count(1, int(_until(victim, client, f"$JS.API.CONSUMER.INFO.{STREAM}.c", acked)))


@attack(
    "5,000 ephemeral consumers whose inactive_threshold expires at once",
    setup=lambda v: v.stream(STREAM, ["load.>"], max_consumers=100_000),
)
def consumers_expire(victim: Victim) -> None:
    client = victim.client()

    def call(number: int) -> bytes:
        name = f"e{number}"
        config = {
            "name": name,
            "ack_policy": "none",
            "inactive_threshold": 3_000_000_000,
            "mem_storage": True,
        }
        return client.call(
            f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": config}
        )

    victim.count(5_000, client.ask([call(number) for number in range(5_000)]))

    def gone(answer: dict[str, dict[str, int]]) -> bool:
        return answer["state"]["consumer_count"] == 0

    victim.count(1, int(_until(victim, client, INFO, gone)))


@attack(
    "500 push consumers on one stream, 1,000 publishes",
    setup=lambda v: v.stream(STREAM, ["load.>"]),
    undo=_delete(STREAM),
)
def push_crowd(victim: Victim) -> None:
    client = victim.client()
    for number in range(500):
        target = f"push{client.inbox.decode()}.{number}"
        # a wildcard subscription does not count as interest
        client.queue(f"SUB {target} p{number}\r\n".encode())
        config = {"durable_name": f"p{number}", "deliver_subject": target, "ack_policy": "none"}
        client.queue(client.call(f"{CONSUMER}p{number}", {"stream_name": STREAM, "config": config}))
    client.run(lambda: client.count >= 500)
    client.queue(b"PUB load.x 16\r\n0123456789abcdef\r\n" * 1_000)
    client.run(lambda: client.count >= 500_500)
    victim.count(500_500, min(client.count, 500_500))


@attack("Nats-Rollup: all on a million subjects", setup=million_subjects)
def rollup_all(victim: Victim) -> None:
    client = victim.client()
    victim.demand(client, UPDATE, _config(allow_rollup_hdrs=True))
    victim.count(1, client.ask([client.publish("load.x", b"Nats-Rollup: all\r\n", b"x")]))


def _two_subjects(victim: Victim) -> None:
    """Fill a stream with a million messages for each of two subjects."""
    victim.fill(2 * MILLION, 2)


def _one_subject(victim: Victim) -> None:
    victim.fill(MILLION)


@attack("Nats-Rollup: all on a million messages of one subject", setup=_one_subject)
def rollup_one_subject(victim: Victim) -> None:
    rollup_all(victim)


@attack("Nats-Rollup: sub on a million messages of one of two subjects", setup=_two_subjects)
def rollup_sub(victim: Victim) -> None:
    client = victim.client()
    victim.demand(client, UPDATE, _config(allow_rollup_hdrs=True))
    victim.count(1, client.ask([client.publish("load.00000000", b"Nats-Rollup: sub\r\n", b"x")]))


def _deduplicating(victim: Victim) -> None:
    victim.stream(STREAM, ["load.>"], duplicate_window=120_000_000_000)
    client = victim.client()
    for start in range(0, 500_000, 50_000):
        calls = [
            client.publish("load.x", b"Nats-Msg-Id: id-%d\r\n" % number, b"x")
            for number in range(start, start + 50_000)
        ]
        client.ask(calls, 4_000)


@attack(
    "a duplicate window of 500,000 ids that is reduced to 100 ms, then STREAM.DELETE", setup=_deduplicating
)
def ids_forgotten(victim: Victim) -> None:
    client = victim.client()
    victim.count(1, client.ask([client.call(UPDATE, _config(duplicate_window=100_000_000))]))
    victim.linger([client], 0.5)
    victim.count(1, client.ask([client.call(f"$JS.API.STREAM.DELETE.{STREAM}")]))


@attack(
    "2,000 consumers of a work queue, whose filters may not overlap",
    setup=lambda v: v.stream(STREAM, ["load.>"], retention="workqueue", max_consumers=100_000),
    undo=_delete(STREAM),
)
def workqueue_filters(victim: Victim) -> None:
    client = victim.client()

    def call(number: int) -> bytes:
        config = {
            "durable_name": f"c{number}",
            "ack_policy": "explicit",
            "filter_subject": f"load.*.{number}.>",
        }
        return client.call(f"{CONSUMER}c{number}", {"stream_name": STREAM, "config": config})

    victim.count(2_000, client.ask([call(number) for number in range(2_000)]))


@attack(
    "20 mirrors of a million messages at once",
    setup=_one_million,
    undo=_delete(*(f"M{number}" for number in range(20))),
)
def mirror_crowd(victim: Victim) -> None:
    client = victim.client()
    calls = []
    for number in range(20):
        body = {"name": f"M{number}", "mirror": {"name": STREAM}}
        calls.append(client.call(f"$JS.API.STREAM.CREATE.M{number}", body))
    victim.count(20, client.ask(calls))

    def whole(answer: dict[str, dict[str, int]]) -> bool:
        return answer["state"]["messages"] == MILLION

    victim.count(
        20, sum(_until(victim, client, f"$JS.API.STREAM.INFO.M{number}", whole) for number in range(20))
    )


def _holes(victim: Victim) -> None:
    """Store 400,000 messages, and remove every second message."""
    victim.fill(400_000, 2)
    client = victim.client()
    victim.demand(client, f"$JS.API.STREAM.PURGE.{STREAM}", {"filter": "load.00000001"})


@attack("20 STREAM.INFO that list 200,000 deleted sequences each", setup=_holes)
def deleted_details(victim: Victim) -> None:
    client = victim.client()
    victim.count(20, client.ask([client.call(INFO, b'{"deleted_details":true}')] * 20, 2))


@attack(
    "a stream of 300 sources, and 100 messages in each",
    undo=_delete("ALL", *(f"O{number}" for number in range(300))),
)
def sources_crowd(victim: Victim) -> None:
    client = victim.client()
    names = [f"O{number}" for number in range(300)]
    calls = [
        client.call(f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.x"]})
        for name in names
    ]
    victim.count(300, client.ask(calls))
    body = {"name": "ALL", "sources": [{"name": name} for name in names]}
    victim.count(1, client.ask([client.call("$JS.API.STREAM.CREATE.ALL", body)]))
    calls = [client.call(f"{name}.x", b"x") for name in names for _ in range(100)]
    victim.count(30_000, client.ask(calls, 4_000))

    def whole(answer: dict[str, dict[str, int]]) -> bool:
        return answer["state"]["messages"] == 30_000

    victim.count(1, int(_until(victim, client, "$JS.API.STREAM.INFO.ALL", whole)))
