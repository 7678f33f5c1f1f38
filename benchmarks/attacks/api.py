"""Heavy and hostile requests to the JetStream API: many assets, many subjects, large deletes."""

from __future__ import annotations

from attacks.attack import Victim, attack

STREAM = "NATSLOAD"  # the stream of the load driver, on load.>
INFO = f"$JS.API.STREAM.INFO.{STREAM}"
MILLION = 1_000_000


def ask(victim: Victim, calls: list[bytes], window: int = 1 << 30) -> None:
    """Send requests from one client, at most `window` of them unanswered; count the answers, and note errors."""
    client = victim.client()
    calls = [call.replace(b" _R0.", b" %s." % client.inbox) for call in calls]
    victim.count(len(calls), client.ask(calls, window))
    if errors := [body for _, _, body in client.messages if b'"error"' in body]:
        victim.note(f"{len(errors):,} errors, the first: {errors[0][:200].decode(errors='replace')}")


def _call(subject: str, body: bytes = b"", number: int = 0) -> bytes:
    return b"PUB %s _R0.%d %d\r\n%s\r\n" % (subject.encode(), number, len(body), body)


def million_subjects(victim: Victim) -> None:
    """Fill a stream with a message for each of a million subjects."""
    victim.fill(MILLION, MILLION)


def _hundred_thousand(victim: Victim) -> None:
    victim.fill(100_000, 1_000)


@attack("100 STREAM.INFO with a subjects_filter over a million subjects", setup=million_subjects)
def info_filter(victim: Victim) -> None:
    ask(victim, [_call(INFO, b'{"subjects_filter":"*.00000007"}')] * 100)


@attack("10 pages of STREAM.INFO with the subjects of a stream of a million subjects", setup=million_subjects)
def info_subjects(victim: Victim) -> None:
    ask(victim, [_call(INFO, b'{"subjects_filter":">","offset":%d}' % (n * 100_000)) for n in range(10)], 2)


@attack(
    '2,000 batched direct gets {"seq":1,"batch":1} on 200,000 messages',
    setup=lambda v: v.fill(200_000, 1_000),
)
def direct_batch(victim: Victim) -> None:
    client = victim.client()
    call = client.call(f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq":1,"batch":1}')
    start = client.count
    for number in range(1, 2_001):
        client.queue(call)
        client.run(lambda number=number: client.count - start >= 2 * number)  # type: ignore[misc]
    victim.count(2_000, (client.count - start) // 2)


def _delete_s(victim: Victim) -> None:
    victim.client().request("$JS.API.STREAM.DELETE.S")


@attack("STREAM.CREATE with 10,000 subjects", undo=_delete_s)
def stream_subjects(victim: Victim) -> None:
    subjects = ",".join(f'"s.{number}.*.x"' for number in range(10_000))
    ask(victim, [_call("$JS.API.STREAM.CREATE.S", f'{{"name":"S","subjects":[{subjects}]}}'.encode())])


@attack("a consumer with 5,000 filters", setup=_hundred_thousand)
def consumer_filters(victim: Victim) -> None:
    filters = ",".join(f'"load.{number:08}"' for number in range(5_000))
    config = f'{{"stream_name":"{STREAM}","config":{{"durable_name":"c","filter_subjects":[{filters}]}}}}'
    ask(victim, [_call(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.c", config.encode())])


def stream_calls(kind: str, count: int) -> list[bytes]:
    """Return the requests that create (kind CREATE) or delete (DELETE) small streams."""

    def body(number: int) -> bytes:
        text = f'{{"name":"S{number}","subjects":["s.{number}"],"storage":"file"}}'
        return text.encode() if kind == "CREATE" else b""

    return [_call(f"$JS.API.STREAM.{kind}.S{number}", body(number), number) for number in range(count)]


@attack("2,000 STREAM.CREATE pipelined, then the deletion of these streams")
def streams(victim: Victim) -> None:
    ask(victim, stream_calls("CREATE", 2_000))
    ask(victim, stream_calls("DELETE", 2_000))


def _consumer_calls(count: int) -> list[bytes]:
    def body(number: int) -> bytes:
        config = f'{{"durable_name":"c{number}","ack_policy":"explicit","filter_subject":"load.{number:08}"}}'
        return f'{{"stream_name":"{STREAM}","config":{config}}}'.encode()

    subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.c"
    return [_call(f"{subject}{number}", body(number), number) for number in range(count)]


def _room_for_consumers(victim: Victim) -> None:
    """Create a stream that allows more consumers than the 1,000 that both servers allow by default."""
    victim.stream(STREAM, ["load.>"], max_consumers=100_000, allow_direct=True)
    client = victim.client()
    client.ask([client.call(f"load.{number % 1_000:08}", b"x" * 16) for number in range(100_000)], 4_000)


@attack("5,000 consumers pipelined, then STREAM.DELETE", setup=_room_for_consumers)
def consumers(victim: Victim) -> None:
    ask(victim, _consumer_calls(5_000))
    ask(victim, [_call(f"$JS.API.STREAM.DELETE.{STREAM}")])


@attack("max_msgs_per_subject lowered on a million messages", setup=lambda v: v.fill(MILLION, 1_000))
def lower_limit(victim: Victim) -> None:
    config = f'{{"name":"{STREAM}","subjects":["load.>"],"max_msgs_per_subject":1,"allow_direct":true}}'
    ask(victim, [_call(f"$JS.API.STREAM.UPDATE.{STREAM}", config.encode())])


@attack("a purge of a million subjects", setup=million_subjects)
def purge(victim: Victim) -> None:
    ask(victim, [_call(f"$JS.API.STREAM.PURGE.{STREAM}")])


@attack("the deletion of a stream of 3 GB", setup=lambda v: v.fill(48_000, 1, 65_536))
def large_delete(victim: Victim) -> None:
    ask(victim, [_call(f"$JS.API.STREAM.DELETE.{STREAM}")])


def two_thousand_streams(victim: Victim) -> None:
    """Create 2,000 empty streams."""
    ask(victim, stream_calls("CREATE", 2_000), 100)


@attack("200 pages of STREAM.LIST and STREAM.NAMES with 2,000 streams", setup=two_thousand_streams)
def listings(victim: Victim) -> None:
    calls = [_call("$JS.API.STREAM.LIST"), _call("$JS.API.STREAM.NAMES", b'{"subject":"s.>"}')]
    ask(victim, calls * 100)


@attack("one consumer created and deleted 5,000 times", setup=_hundred_thousand)
def consumer_loop(victim: Victim) -> None:
    delete = _call(f"$JS.API.CONSUMER.DELETE.{STREAM}.c0")
    ask(victim, [_consumer_calls(1)[0], delete] * 5_000)


@attack("one stream created and deleted 5,000 times")
def stream_loop(victim: Victim) -> None:
    ask(victim, (stream_calls("CREATE", 1) + stream_calls("DELETE", 1)) * 5_000, 1_000)


@attack("20,000 requests to API subjects that do not exist, or contain wildcards", setup=_hundred_thousand)
def api_wildcards(victim: Victim) -> None:
    names = (
        "STREAM.INFO.*",
        "STREAM.INFO.>",
        "CONSUMER.INFO.*.*",
        "NOTHING",
        "STREAM.CREATE." + "x" * 300,
        "INFO.x",
    )
    client = victim.client()
    calls = [client.call(f"$JS.API.{names[number % len(names)]}") for number in range(20_000)]
    client.queue(b"".join(calls))
    victim.count(1, int(client.fence()))


@attack("20,000 requests to $SYS from an ordinary client")
def sys_requests(victim: Victim) -> None:
    names = ("SERVER.PING", "SERVER.PING.JSZ", "ACCOUNT.$G.JSZ", "USER.INFO", "ACCOUNT.PING.CONNZ")
    client = victim.client()
    client.queue(b"".join(client.call(f"$SYS.REQ.{names[n % len(names)]}") for n in range(20_000)))
    victim.count(1, int(client.fence()))


@attack("20,000 secure erases", setup=_hundred_thousand)
def erase(victim: Victim) -> None:
    subject = f"$JS.API.STREAM.MSG.DELETE.{STREAM}"
    ask(victim, [_call(subject, b'{"seq":%d}' % (5 * number + 2)) for number in range(20_000)], 1_000)


def _old_subjects(victim: Victim) -> None:
    """Fill a stream with a message for each of 20,000 subjects, then with a million messages of another subject."""
    victim.stream("OLD", ["w.>", "o"])
    client = victim.client()
    client.send(b"".join(b"PUB w.%d.x 0\r\n\r\n" % number for number in range(20_000)))
    client.send(b"PUB o 0\r\n\r\n" * MILLION)
    client.fence()
    victim.demand(client, "$JS.API.STREAM.INFO.OLD")


@attack("200 publishes that expect the last sequence of 20,000 old subjects", setup=_old_subjects)
def expected_wildcard(victim: Victim) -> None:
    client = victim.client()
    headers = b"Nats-Expected-Last-Subject-Sequence: 20000\r\nNats-Expected-Last-Subject-Sequence-Subject: w.*.x\r\n"
    victim.count(200, client.ask([client.publish("o", headers) for _ in range(200)]))


@attack("2,000 purges with `filter` and `keep`", setup=_hundred_thousand)
def purge_loop(victim: Victim) -> None:
    subject = f"$JS.API.STREAM.PURGE.{STREAM}"
    bodies = [b'{"filter":"load.%08d","keep":1}' % (number % 1_000) for number in range(1_000)]
    bodies += [b'{"filter":"load.*","keep":%d}' % (90_000 - number) for number in range(1_000)]
    ask(victim, [_call(subject, body) for body in bodies])


def _thousand_consumers(victim: Victim) -> None:
    _room_for_consumers(victim)
    ask(victim, _consumer_calls(1_000), 100)


@attack("500 updates of a stream with 1,000 consumers", setup=_thousand_consumers)
def updates(victim: Victim) -> None:
    subject = f"$JS.API.STREAM.UPDATE.{STREAM}"
    body = '{"name":"%s","subjects":["load.>","x.%d"],"max_msgs":%d,"allow_direct":true}'
    ask(victim, [_call(subject, (body % (STREAM, n, 50_000 + n)).encode()) for n in range(500)])


def _batch(number: int, inbox: bytes) -> bytes:
    """Return an atomic batch of 60 MB whose commit has the reply subject `inbox`."""
    lines = []
    for seq in range(1, 1_001):
        head = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: %d\r\n" % (number, seq)
        head += b"Nats-Batch-Commit: 1\r\n\r\n" if seq == 1_000 else b"\r\n"
        reply = b"%s.b " % inbox if seq == 1_000 else b""
        sizes = b"%d %d" % (len(head), len(head) + 60_000)
        lines.append(b"HPUB big %s%s\r\n%s%s\r\n" % (reply, sizes, head, bytes(60_000)))
    return b"".join(lines)


@attack("4 atomic batches of 60 MB", setup=lambda v: v.stream("BIG", ["big"], allow_atomic=True))
def large_batches(victim: Victim) -> None:
    client = victim.client()
    for number in range(4):
        before = client.count
        client.queue(_batch(number, client.inbox))
        client.run(lambda before=before: client.count > before)  # type: ignore[misc]
        if client.messages and b'"count"' not in client.messages[-1][2]:
            victim.note(client.messages[-1][2][:200].decode(errors="replace"))
    victim.count(4, client.count)
