"""Both decoders, compared with a slow reference: random frames, cut anywhere, become the same columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.tests.support.columns import readable, rows_of, slow_map, values

from pyjs_spark.decode import wire
from pyjs_spark.decode.wire import DONE, ENOUGH, FULL, GAP, NEED_MORE, OTHER, TOO_LARGE, Decoder
from pyjs_spark_fast import wire as _wire

MakeDecoder = Callable[..., Decoder]
ALL = ("seq", "ts_ns", "subject", "headers", "data", "size")
SID = 7
FAR = 2**62
TS = 1_790_000_000_123_456_789


@pytest.fixture(params=[wire.Decoder, _wire.Decoder], ids=["pure", "compiled"])
def make(request: pytest.FixtureRequest) -> MakeDecoder:
    """Return a function that makes a decoder with a subscription."""

    def made(
        columns: tuple[str, ...] = ALL,
        headers: str = "map",
        rows_max: int = 100,
        size_max: int = 1 << 20,
        high: int = FAR,
        next_seq: int = 1,
    ) -> Decoder:
        decoder: Decoder = request.param(columns, headers, rows_max, size_max)
        decoder.listen(SID, high, next_seq)
        decoder.expect(1 << 40)
        return decoder

    return made


@dataclass
class Message:
    """One delivery, before it is encoded."""

    seq: int
    subject: bytes = b"orders.new"
    headers: bytes = b""
    payload: bytes = b""
    ts: int = TS
    pending: int = 5
    consumer_seq: int = 0  # 0: its position in the list

    def frame(self, number: int = 1, reply: bytes = b"$JS.ACK.ORDERS.c1", tail: bytes = b"") -> bytes:
        seq = self.consumer_seq or number
        reply = b"%b.1.%d.%d.%d.%d%b" % (reply, self.seq, seq, self.ts, self.pending, tail)
        total = len(self.headers) + len(self.payload)
        head = b"%d " % len(self.headers) if self.headers else b""
        verb = b"HMSG" if self.headers else b"MSG"
        line = b"%b %b %d %b %b%d\r\n" % (verb, self.subject, SID, reply, head, total)
        return line + self.headers + self.payload + b"\r\n"


def frames(*messages: Message) -> bytes:
    return b"".join(message.frame(number) for number, message in enumerate(messages, 1))


def feed(decoder: Decoder, data: bytes, start: int = 0) -> int:
    return decoder.decode(bytearray(data), start, len(data))


def expected(messages: list[Message]) -> dict[str, list[object]]:
    return {
        "seq": [message.seq for message in messages],
        "ts_ns": [message.ts for message in messages],
        "subject": [readable(message.subject) for message in messages],
        "headers": [slow_map(message.headers) for message in messages],
        "data": [message.payload for message in messages],
        "size": [len(message.payload) for message in messages],
    }


FIRST = Message(3, b"orders.new", b"", b"hello")
SECOND = Message(4, b"a", b"NATS/1.0\r\nA: 1\r\nB:x\r\nA:2\r\n\r\n", b"\r\nMSG x 7 1\r\n")
THIRD = Message(9, b"b.c", b"NATS/1.0\r\n\r\n", b"", pending=0)


def test_frames_become_columns(make: MakeDecoder) -> None:
    decoder = make()
    data = frames(FIRST, SECOND, THIRD)

    assert feed(decoder, data) == len(data)
    assert (decoder.state, decoder.last_seq, decoder.delivered, decoder.pending) == (DONE, 9, 3, 0)
    rows = rows_of(decoder)
    assert rows == expected([FIRST, SECOND, THIRD])
    assert rows["headers"] == [None, {b"A": [b"1", b"2"], b"B": [b"x"]}, {}]


def test_frames_cut_at_every_byte_are_the_same(make: MakeDecoder) -> None:
    data = frames(FIRST, SECOND, THIRD)
    for cut in range(len(data) + 1):
        decoder = make()
        at = feed(decoder, data[:cut])
        if at < len(data):
            assert decoder.state == NEED_MORE
            assert cut - at < decoder.need <= len(data) - at
            at = feed(decoder, data, at)
        assert at == len(data)
        assert rows_of(decoder) == expected([FIRST, SECOND, THIRD])


def test_byte_after_byte_is_the_same_and_need_is_never_too_much(make: MakeDecoder) -> None:
    data = frames(FIRST, SECOND, THIRD)
    decoder = make()
    at, end = 0, 0
    while at < len(data):
        end = max(end + 1, at + decoder.need)
        at = decoder.decode(bytearray(data), at, end)

    assert rows_of(decoder) == expected([FIRST, SECOND, THIRD])


text = st.binary(max_size=12)
line = st.builds(lambda name, value: name + b":" + value + b"\r\n", text, text) | text.map(
    lambda t: t + b"\r\n"
)
blocks = st.just(b"") | st.lists(line, max_size=6).map(
    lambda lines: b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"
)
blocks |= st.binary(max_size=40)
subjects = st.binary(min_size=1, max_size=20).map(lambda t: t.translate(None, b" \t\r\n\x0b\x0c") or b"x")
drawn = st.lists(
    st.builds(
        Message,
        seq=st.integers(1, 50),
        subject=subjects,
        headers=blocks,
        payload=st.binary(max_size=60),
        ts=st.integers(0, 2**63 - 2**59),
        pending=st.integers(1, 10**18 - 1),
    ),
    max_size=8,
)


@given(messages=drawn, cuts=st.lists(st.integers(0, 2000), max_size=5), split=st.integers(1, 9))
@settings(max_examples=400, deadline=None)
def test_any_messages_become_what_the_reference_says(
    messages: list[Message], cuts: list[int], split: int
) -> None:
    seq = 0
    for message in messages:
        seq = message.seq = seq + message.seq
    data = frames(*messages)
    found = []
    for kind in (wire.Decoder, _wire.Decoder):
        decoder = kind(ALL, "map", split, 1 << 20)
        decoder.listen(SID, FAR, 1)
        decoder.expect(1 << 40)
        at, batches = 0, []
        for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
            at = decoder.decode(bytearray(data), at, end) if end >= at else at
            while decoder.state == FULL:
                batches.append(rows_of(decoder))
                at = decoder.decode(bytearray(data), at, end)
        batches.append(rows_of(decoder))
        assert at == len(data)
        found.append(batches)

    assert found[0] == found[1]
    whole = {name: [value for batch in found[0] for value in batch[name]] for name in ALL}
    assert whole == expected(messages)


@given(data=st.binary(max_size=300), edit=st.integers(0, 400), value=st.integers(0, 255))
@settings(max_examples=400, deadline=None)
def test_damaged_bytes_stop_both_at_the_same_place(data: bytes, edit: int, value: int) -> None:
    good = bytearray(frames(FIRST, SECOND, THIRD) + data)
    good[edit % len(good)] = value
    found = []
    for kind in (wire.Decoder, _wire.Decoder):
        decoder = kind(ALL, "map", 100, 1 << 20)
        decoder.listen(SID, FAR, 1)
        decoder.expect(1 << 40)
        at = decoder.decode(good, 0, len(good))
        found.append((at, decoder.state, decoder.need, decoder.last_seq, decoder.pending, rows_of(decoder)))

    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("reply", "tail"),
    [
        (b"$JS.ACK.ORDERS.c1", b""),
        (b"$JS.ACK.hub.Xa7.ORDERS.c1", b""),
        (b"$JS.ACK._.Xa7.ORDERS.c1", b".rnd"),
    ],
)
def test_reply_subjects_of_both_forms_are_read(make: MakeDecoder, reply: bytes, tail: bytes) -> None:
    decoder = make()
    data = FIRST.frame(1, reply, tail) + SECOND.frame(2, reply, tail)

    assert feed(decoder, data) == len(data)
    assert rows_of(decoder)["seq"] == [3, 4]


@pytest.mark.parametrize(
    "frame",
    [
        b"PING\r\n",
        b"MSG _INBOX.x 7 0\r\n\r\n",
        b"HMSG _INBOX.x 7 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
        b"HMSG _INBOX.x 7 $JS.FC.ORDERS.c1.x 33 33\r\nNATS/1.0 100 FlowControl Request\r\n\r\n\r\n",
        Message(5).frame(3).replace(b" 7 ", b" 8 "),
        Message(5).frame(3, b"$JS.ACK.ORDERS.other"),
        Message(5).frame(3, b"$JS.ACK.x"),
        Message(5, ts=9_000_000_000_000_000_000).frame(3),
        b"MSG a 7 $JS.ACK.ORDERS.c1.1.5.3.1.1 9 4\r\nabcd\r\n",
        b"MSG a 7 $JS.ACK.ORDERS.c1.1.x.3.1.1 4\r\nabcd\r\n",
        b"-ERR 'Slow Consumer'\r\n",
    ],
)
def test_anything_else_stops_the_decoder_in_front_of_it(make: MakeDecoder, frame: bytes) -> None:
    decoder = make()
    before = frames(FIRST, SECOND)

    assert feed(decoder, before + frame + THIRD.frame(3)) == len(before)
    assert (decoder.state, decoder.rows) == (OTHER, 2)


def test_something_else_first_stops_it_too(make: MakeDecoder) -> None:
    decoder = make()

    assert feed(decoder, b"PING\r\n") == 0
    assert decoder.state == OTHER
    assert feed(decoder, b"PI") == 0
    assert (decoder.state, decoder.need) == (NEED_MORE, 3)
    assert feed(decoder, b"") == 0
    assert (decoder.state, decoder.need) == (NEED_MORE, 1)


def test_a_batch_ends_at_its_rows(make: MakeDecoder) -> None:
    decoder = make(rows_max=2)
    data = frames(*(Message(seq, payload=b"%d" % seq) for seq in range(1, 6)))

    at = feed(decoder, data)
    assert (decoder.state, rows_of(decoder)["data"]) == (FULL, [b"1", b"2"])
    at = feed(decoder, data, at)
    assert (decoder.state, rows_of(decoder)["data"]) == (FULL, [b"3", b"4"])
    feed(decoder, data, at)
    assert (decoder.state, rows_of(decoder)["data"]) == (NEED_MORE, [b"5"])


def test_a_batch_ends_before_its_bytes_and_a_larger_message_is_one_alone(make: MakeDecoder) -> None:
    decoder = make(size_max=100)
    sizes = [50, 30, 80, 500, 1]
    data = frames(*(Message(seq, b"s", b"", b"x" * size) for seq, size in enumerate(sizes, 1)))
    at, batches = 0, []
    while at < len(data):
        at = feed(decoder, data, at)
        batches.append(rows_of(decoder)["size"])

    assert batches == [[50, 30], [80], [500], [1]]


def test_megabytes_of_payload_arrive_whole(make: MakeDecoder) -> None:
    decoder = make(size_max=1 << 25)
    payload = bytes(range(256)) * 4096
    data = frames(*(Message(seq, payload=payload) for seq in (1, 2, 3)))

    assert feed(decoder, data[: 1 << 20]) == 0
    assert (decoder.state, decoder.need) == (NEED_MORE, len(frames(Message(1, payload=payload))))
    assert feed(decoder, data) == len(data)
    assert rows_of(decoder)["data"] == [payload] * 3


def test_it_stops_when_the_range_is_read(make: MakeDecoder) -> None:
    last = make(high=5)
    beyond = make(high=5)

    feed(last, frames(Message(3), Message(4), Message(5)))
    feed(beyond, frames(Message(3), Message(7), Message(8)))

    assert (last.state, rows_of(last)["seq"]) == (DONE, [3, 4])
    assert (beyond.state, rows_of(beyond)["seq"]) == (DONE, [3])


def test_it_stops_when_the_pull_request_is_fulfilled(make: MakeDecoder) -> None:
    decoder = make()
    data = frames(*(Message(seq) for seq in (1, 2, 3)))
    decoder.expect(2)

    at = feed(decoder, data)
    assert (decoder.state, decoder.delivered, at < len(data)) == (ENOUGH, 2, True)
    decoder.expect(1)
    assert feed(decoder, data, at) == len(data)
    assert (decoder.state, rows_of(decoder)["seq"]) == (ENOUGH, [1, 2, 3])


@pytest.mark.parametrize(
    "wrong", [Message(5, consumer_seq=4), Message(5, consumer_seq=2), Message(4), Message(2)]
)
def test_a_missing_or_repeated_delivery_is_a_gap(make: MakeDecoder, wrong: Message) -> None:
    decoder = make()
    good = frames(Message(3), Message(4))

    assert feed(decoder, good + wrong.frame(3)) == len(good)
    assert (decoder.state, decoder.last_seq, rows_of(decoder)["seq"]) == (GAP, 4, [3, 4])


def test_a_new_consumer_goes_on_in_the_same_batch(make: MakeDecoder) -> None:
    decoder = make()
    feed(decoder, frames(Message(3), Message(4)))

    decoder.listen(SID, FAR, 5)
    decoder.expect(10)
    feed(decoder, Message(5).frame(1, b"$JS.ACK.ORDERS.c2"))

    assert (decoder.delivered, rows_of(decoder)["seq"]) == (1, [3, 4, 5])


@pytest.mark.parametrize("seq", [2**63, 2**64 - 1, 2**64, 10**20 - 1])
def test_a_sequence_that_no_column_holds_is_told(make: MakeDecoder, seq: int) -> None:
    decoder = make(high=2**63 - 1)
    good = frames(Message(3))

    assert feed(decoder, good + Message(seq).frame(2)) == len(good)
    assert decoder.state == TOO_LARGE


def test_the_largest_sequence_is_read(make: MakeDecoder) -> None:
    decoder = make(high=2**63 - 1)
    feed(decoder, frames(Message(2**63 - 2)))

    assert rows_of(decoder)["seq"] == [2**63 - 2]


def test_raw_headers_are_the_block_itself(make: MakeDecoder) -> None:
    decoder = make(headers="raw")
    feed(decoder, frames(FIRST, SECOND, THIRD))

    assert rows_of(decoder)["headers"] == [None, SECOND.headers, THIRD.headers]


def test_headers_with_very_many_lines_keep_their_order(make: MakeDecoder) -> None:
    lines = b"".join(b"N%d: %d\r\n" % (number % 50, number) for number in range(200))
    decoder = make()
    message = Message(1, headers=b"NATS/1.0\r\n" + lines + b"\r\n")
    feed(decoder, frames(message, Message(2), Message(3, headers=b"NATS/1.0\r\nA:1\r\n\r\n")))

    found = rows_of(decoder)["headers"]
    assert found == [slow_map(message.headers), None, {b"A": [b"1"]}]
    assert isinstance(found[0], dict)
    assert list(found[0])[:2] == [b"N0", b"N1"]


@pytest.mark.parametrize(
    "columns", [(), ("seq",), ("size", "seq"), ("data",), ("headers",), ("subject", "ts_ns")]
)
@pytest.mark.parametrize("headers", ["map", "raw", "false"])
def test_only_wanted_columns_are_filled(make: MakeDecoder, columns: tuple[str, ...], headers: str) -> None:
    decoder = make(columns, headers)
    feed(decoder, frames(FIRST, SECOND, THIRD))
    wanted = tuple(name for name in columns if name != "headers" or headers != "false")

    assert decoder.rows == 3
    assert tuple(rows_of(decoder)) == wanted


def test_columns_outlive_the_decoder_and_later_batches(make: MakeDecoder) -> None:
    decoder = make(rows_max=1)
    data = frames(Message(1, payload=b"first"), Message(2, payload=b"other"))
    at = feed(decoder, data)
    taken = decoder.take()
    feed(decoder, data, at)
    decoder.take()
    del decoder

    assert values(*taken.columns["data"]) == [b"first"]


def test_bytes_that_are_no_utf8_become_replacement_characters(make: MakeDecoder) -> None:
    decoder = make()
    blocks = b"NATS/1.0\r\n\xc3\xbc: \xff\r\nz: \xe2\x82\r\nz: \xac\r\n\r\n"
    feed(decoder, frames(Message(1, b"\xc3\xbc.\xc3", blocks), Message(2, b"\xbc")))
    rows = rows_of(decoder)

    assert rows["subject"] == ["ü.�".encode(), "�".encode()]
    assert rows["headers"] == [{"ü".encode(): ["�".encode()], b"z": ["�".encode(), "�".encode()]}, None]
