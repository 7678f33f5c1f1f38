"""Publishing to streams: answers, conditions, limits, duplicates, expiry; on a virtual clock, in memory."""

from __future__ import annotations

import json

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

MS = 1_000_000
S = 1_000 * MS


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def test_a_publish_is_answered_with_its_sequence(js: JetStreamFixture) -> None:
    js.add("ORDERS", subjects=["orders.>"])

    answer = js.ask("orders.new", b"hello")

    assert answer.payload == b'{"stream":"ORDERS","seq":1}'
    assert answer.headers == b""
    assert js.payloads("ORDERS") == [b"hello"]


def test_a_publish_without_reply_is_stored_and_not_answered(js: JetStreamFixture) -> None:
    js.add("ORDERS", subjects=["orders.>"])

    js.user.send(b"PUB orders.a 1\r\na\r\nPUB orders.b 1\r\nb\r\n")

    assert js.user.take() == b""
    assert js.payloads("ORDERS") == [b"a", b"b"]


def test_other_subjects_are_not_stored(js: JetStreamFixture) -> None:
    js.add("ORDERS", subjects=["orders.*"])

    answer = js.ask("orders.a.b", b"x")

    assert answer.headers.startswith(b"NATS/1.0 503\r\n")
    assert js.state("ORDERS")["messages"] == 0


def test_many_publishes_in_one_read_are_answered_in_order(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.user.send(b"SUB _INBOX.> 1\r\n")

    js.user.send(b"".join(b"PUB s _INBOX.%d 1\r\nx\r\n" % i for i in range(20_000)))
    frames = js.user.frames()

    assert [frame.payload for frame in frames] == [b'{"stream":"S","seq":%d}' % i for i in range(1, 20_001)]
    assert [frame.subject for frame in frames] == [b"_INBOX.%d" % i for i in range(20_000)]


def test_a_no_ack_stream_answers_nobody(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], no_ack=True, max_msg_size=5)
    js.user.send(b"SUB _INBOX.> 1\r\nPUB s _INBOX.a 1\r\nx\r\nPUB s _INBOX.a 6\r\nxxxxxx\r\n")
    assert js.user.take() == b""
    assert js.payloads("S") == [b"x"]


def test_times_of_messages_never_repeat(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.user.send(b"PUB s 1\r\na\r\n" * 3)
    stored = [js.stream("S").store.get(seq) for seq in (1, 2, 3)]
    times = [message.ts for message in stored if message]
    assert times[0] < times[1] < times[2]


def test_headers_are_stored_without_their_status(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])

    js.ask("s", b"x", b"NATS/1.0 503 No\r\nA: b\r\n\r\n")
    js.ask("s", b"x", b"NATS/1.0 503\r\n\r\n")
    first, second = (js.stream("S").store.get(seq) for seq in (1, 2))

    assert first
    assert second
    assert first.headers == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert second.headers == b""
    assert second.payload == b"x"


# -- dedupe ------------------------------------------------------------------------------------------------------


def test_a_repeated_message_id_is_a_duplicate(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"])
    js.publish("s.a", Nats_Msg_Id="one")

    answer = js.ask("s.b", b"other", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")

    assert answer.payload == b'{"stream":"S","seq":1,"duplicate": true}'
    assert js.state("S")["messages"] == 1


def test_a_message_id_is_forgotten_after_the_window(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], duplicate_window=1 * S)
    js.publish("s", Nats_Msg_Id="one")
    js.advance(milliseconds=900)
    assert js.publish("s", Nats_Msg_Id="one")["duplicate"] is True
    js.advance(milliseconds=200)
    assert js.publish("s", Nats_Msg_Id="one") == {"stream": "S", "seq": 2}


# -- conditions --------------------------------------------------------------------------------------------------


def test_expected_stream(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.publish("s", Nats_Expected_Stream="S")["seq"] == 1
    assert js.refused("s", Nats_Expected_Stream="T") == (400, 10060, "expected stream does not match")


def test_expected_last_sequence(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.publish("s", Nats_Expected_Last_Sequence="0")["seq"] == 1
    assert js.refused("s", Nats_Expected_Last_Sequence="0") == (400, 10071, "wrong last sequence: 1")
    assert js.refused("s", Nats_Expected_Last_Sequence="x") == (400, 10071, "wrong last sequence: 1")


def test_expected_last_sequence_of_the_subject(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"])
    js.publish("s.a")
    js.publish("s.b")
    assert js.publish("s.a", Nats_Expected_Last_Subject_Sequence="1")["seq"] == 3
    assert js.publish("s.c", Nats_Expected_Last_Subject_Sequence="0")["seq"] == 4
    assert js.refused("s.b", Nats_Expected_Last_Subject_Sequence="1")[1:] == (10071, "wrong last sequence: 2")


def test_expected_last_sequence_of_another_subject(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"])
    js.publish("s.a.1")
    expected = {
        "Nats_Expected_Last_Subject_Sequence": "1",
        "Nats_Expected_Last_Subject_Sequence_Subject": "s.a.*",
    }
    assert js.publish("s.b", **expected)["seq"] == 2
    assert js.publish("s.a.2", **expected)["seq"] == 3
    assert js.refused("s.b", **expected)[1:] == (10071, "wrong last sequence: 3")
    assert js.refused("s.b", Nats_Expected_Last_Subject_Sequence_Subject="s.a.*")[1] == 10193


def test_expected_last_message_id(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.refused("s", Nats_Expected_Last_Msg_Id="a") == (400, 10070, "wrong last msg ID: ")
    js.publish("s", Nats_Msg_Id="a")
    assert js.refused("s", Nats_Expected_Last_Msg_Id="b") == (400, 10070, "wrong last msg ID: a")
    assert js.publish("s", Nats_Expected_Last_Msg_Id="a")["seq"] == 2
    assert js.refused("s", Nats_Expected_Last_Msg_Id="a") == (400, 10070, "wrong last msg ID: ")


def test_a_duplicate_is_found_before_the_last_message_id_is_compared(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.publish("s", Nats_Msg_Id="a")
    assert js.publish("s", Nats_Msg_Id="a", Nats_Expected_Last_Msg_Id="zz")["duplicate"] is True


@pytest.mark.parametrize(
    ("header", "value", "number", "text"),
    [
        ("Nats_TTL", "1s", 10166, "per-message TTL is disabled"),
        ("Nats_Incr", "1", 10168, "message counters is disabled"),
        ("Nats_Batch_Id", "b", 10174, "atomic publish is disabled"),
        ("Nats_Schedule", "@every 1s", 10188, "message schedules is disabled"),
        ("Nats_Stream_Source", "x", 10227, "message stream source header is not allowed"),
    ],
)
def test_headers_of_disabled_features_are_refused(
    js: JetStreamFixture, header: str, value: str, number: int, text: str
) -> None:
    js.add("S", subjects=["s"])
    assert js.refused("s", **{header: value}) == (400, number, text)


# -- roll-ups ----------------------------------------------------------------------------------------------------


def test_a_rollup_replaces_what_is_older(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"], allow_rollup_hdrs=True)
    for subject in ("s.a", "s.b", "s.a"):
        js.publish(subject, subject.encode())

    js.publish("s.a", b"sub", Nats_Rollup="sub")
    assert js.payloads("S") == [b"s.b", b"sub"]

    js.publish("s.c", b"all", Nats_Rollup="All")
    assert js.payloads("S") == [b"all"]


def test_a_rollup_needs_permission_and_a_known_scope(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.add("R", subjects=["r"], allow_rollup_hdrs=True)
    assert js.refused("s", Nats_Rollup="sub") == (500, 10111, "rollup not permitted")
    assert js.refused("r", Nats_Rollup="ZZ") == (500, 10111, 'rollup value invalid: "zz"')


# -- limits ------------------------------------------------------------------------------------------------------


def test_a_message_over_max_msg_size_is_refused(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_msg_size=30)
    assert js.publish("s", b"x" * 30)["seq"] == 1
    assert js.refused("s", b"x" * 31) == (400, 10054, "message size exceeds maximum allowed")
    assert js.refused("s", b"x" * 20, A="bbbbbb")[1] == 10054


def test_headers_over_64_kib_are_refused(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.refused("s", A="b" * 65536) == (400, 10097, "header size exceeds maximum allowed of 64k")


def test_discard_old_keeps_the_newest(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_msgs=3)
    for i in range(5):
        js.publish("s", b"%d" % i)
    assert js.payloads("S") == [b"2", b"3", b"4"]
    assert js.state("S")["first_seq"] == 3


def test_discard_old_by_bytes(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_bytes=60)  # a message of 10 bytes counts as 27 bytes in memory
    for i in range(5):
        js.publish("s", b"%d" % i * 10)
    assert js.payloads("S") == [b"3" * 10, b"4" * 10]


def test_discard_new_refuses_when_full(js: JetStreamFixture) -> None:
    js.add("M", subjects=["m"], max_msgs=1, discard="new")
    js.add("B", subjects=["b"], max_bytes=30, discard="new")
    js.publish("m")
    js.publish("b")
    assert js.refused("m") == (503, 10077, "maximum messages exceeded")
    assert js.refused("b") == (503, 10077, "maximum bytes exceeded")
    assert js.payloads("M") == [b"x"]


def test_the_oldest_of_a_subject_goes(js: JetStreamFixture) -> None:
    js.add("KV", subjects=["k.>"], max_msgs_per_subject=1)
    js.user.send(b"PUB k.a 1\r\n1\r\nPUB k.b 1\r\n2\r\nPUB k.a 1\r\n3\r\n")
    assert js.payloads("KV") == [b"2", b"3"]


def test_discard_new_per_subject(js: JetStreamFixture) -> None:
    js.add("KV", subjects=["k.>"], max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    js.publish("k.a")
    assert js.refused("k.a") == (503, 10077, "maximum messages per subject exceeded")
    assert js.publish("k.b")["seq"] == 2


def test_discard_new_with_a_full_subject_replaces(js: JetStreamFixture) -> None:
    js.add("KV", subjects=["k.>"], max_msgs_per_subject=1, max_msgs=1, discard="new")
    js.publish("k.a", b"1")
    assert js.publish("k.a", b"2")["seq"] == 2
    assert js.refused("k.b")[2] == "maximum messages exceeded"
    assert js.payloads("KV") == [b"2"]


def test_messages_expire(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_age=1 * S)
    js.publish("s", b"1")
    js.advance(milliseconds=500)
    js.publish("s", b"2")
    js.advance(milliseconds=600)
    assert js.payloads("S") == [b"2"]
    js.advance(milliseconds=600)
    assert js.state("S")["messages"] == 0
    js.publish("s", b"3")
    js.advance(seconds=2)
    assert js.payloads("S") == []


def test_a_shorter_max_age_takes_effect_at_once(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_age=100 * S)
    js.publish("s")
    js.advance(seconds=10)
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "max_age": 5 * S})
    js.advance(milliseconds=200)
    assert js.payloads("S") == []


def test_account_and_server_room_is_counted(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.publish("s", b"x" * 100)
    assert js.api("INFO")["memory"] == 117
    js.api("STREAM.PURGE.S")
    assert js.api("INFO")["memory"] == 0
    js.publish("s", b"x" * 100)
    js.api("STREAM.DELETE.S")
    assert js.api("INFO")["memory"] == 0
    assert js.node.jetstream
    assert js.node.jetstream.memory.used == 0


# -- retention ---------------------------------------------------------------------------------------------------


def test_an_interest_stream_without_consumers_uses_up_sequences(js: JetStreamFixture) -> None:
    js.add("I", subjects=["i"], retention="interest")
    assert js.publish("i") == {"stream": "I", "seq": 1}
    state = js.state("I")
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 2, 1)


def test_a_sealed_stream_takes_nothing(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.publish("s")
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "sealed": True})
    assert js.refused("s") == (400, 10109, "invalid operation on sealed stream")


def test_two_streams_that_answer_each_other_do_not_loop(js: JetStreamFixture) -> None:
    js.add("A", subjects=["a"])
    js.add("B", subjects=["b"])

    js.user.send(b"PUB a b 1\r\nx\r\n")

    assert js.payloads("A") == [b"x"]
    assert js.payloads("B") == [b'{"stream":"A","seq":1}']


def test_a_stream_that_is_changed_and_deleted_at_once_uses_no_memory_afterwards() -> None:
    # given
    js = JetStreamFixture()
    js.add("S", subjects=["s"])
    js.publish("s", b"x" * 1000)
    config = json.dumps({"name": "S", "subjects": ["s"], "storage": "memory", "max_msgs": 5}).encode()

    # when
    update = b"PUB $JS.API.STREAM.UPDATE.S %d\r\n%b\r\n" % (len(config), config)
    js.user.send(update + b"PUB $JS.API.STREAM.DELETE.S 0\r\n\r\n")
    js.turn()

    # then
    assert js.api("STREAM.NAMES")["streams"] is None
    assert js.api("INFO")["memory"] == 0


# -- conditions on wildcards that take long --------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> JetStreamFixture:
    """A stream S of o and w.*.a.b.c: the last messages of 17,000 subjects are 120,000 messages back."""
    js = JetStreamFixture()
    js.add("S", subjects=["w.>", "o"])
    store = js.stream("S").store
    for number in range(17_000):
        store.store(b"w.%d.a.b.c" % number, b"", b"", 1)
    for _ in range(120_000):
        store.store(b"o", b"", b"", 1)
    js.user.send(b"SUB _INBOX.> 1\r\n")
    return js


def conditional(filters: list[bytes]) -> bytes:
    """Return publishes, each with a condition on the last message of one of `filters`."""
    found = []
    for wanted in filters:
        head = (
            b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 17000\r\n"
            b"Nats-Expected-Last-Subject-Sequence-Subject: %b\r\n\r\n" % wanted
        )
        found.append(b"HPUB o _INBOX.a %d %d\r\n%b\r\n" % (len(head), len(head), head))
    return b"".join(found)


def stored_per_turn(js: JetStreamFixture, data: bytes) -> list[int]:
    """Send `data` in one read; return how many messages the read and each turn after it have stored."""
    store, counts = js.stream("S").store, []
    before = store.last_seq
    js.user.session.receive_buffer(bytearray(data), len(data))
    while True:
        counts.append(store.last_seq - before)
        before = store.last_seq
        if not js.node.has_work and len(counts) > 1:
            break
        js.node.turn(js.clock.now_ns())
    js.turn()
    assert all(b'"seq"' in payload and b"error" not in payload for payload in js.user.payloads())
    return [count for count in counts if count]


def test_a_session_gives_way_after_each_expensive_condition(wide: JetStreamFixture) -> None:
    filters = [b"w.*.a.b.*", b"w.*.a.*.c", b"*.*.a.b.c", b"w.*.*.b.c", b"w.*.a.b.c"]

    assert stored_per_turn(wide, conditional(filters)) == [1, 1, 1, 1, 1]


def test_a_repeated_condition_on_a_wildcard_is_expensive_only_once(wide: JetStreamFixture) -> None:
    assert stored_per_turn(wide, conditional([b"w.*.a.>"] * 200)) == [1, 199]
