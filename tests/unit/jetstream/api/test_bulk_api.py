"""$JS.API.PYJS.BULK.*: requests, errors, sizes; contents of chunks: tests/unit/store/file/test_bulk.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.bulk import Chunk, decode
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.api import bulk
from pyjs.testing import Frame, RawClient

LIST, READ = "$JS.API.PYJS.BULK.LIST.S", "$JS.API.PYJS.BULK.READ.S"


@pytest.fixture
def js() -> JetStreamFixture:
    fixture = JetStreamFixture()
    fixture.add("S", subjects=["s.>"], allow_direct=True)
    return fixture


def ask(client: RawClient, subject: str, body: Any = b"") -> list[Frame]:
    """Send a request and return every answer."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    client.send(b"SUB _INBOX.b.* b\r\n")
    client.take()
    client.send(b"PUB %b _INBOX.b.1 %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
    frames = client.frames()
    client.send(b"UNSUB b\r\n")
    return frames


def chunks(js: JetStreamFixture, body: Any = b"") -> list[Chunk]:
    return [decode(frame.payload) for frame in ask(js.user, READ, body)]


def error(js: JetStreamFixture, subject: str, body: Any) -> tuple[int, int, str]:
    (frame,) = ask(js.user, subject, body)
    answer = json.loads(frame.payload)
    assert answer["type"] == f"io.pyjs.api.v1.bulk_{subject.split('.')[4].lower()}_response"
    refused = answer["error"]
    return refused["code"], refused["err_code"], refused["description"]


def test_a_stream_is_read_from_the_first_message_on(js: JetStreamFixture) -> None:
    # given
    for i in range(3):
        js.publish(f"s.{i}", b"payload %d" % i)
    # when
    (chunk,) = chunks(js)
    # then
    assert [(m.seq, m.subject, m.payload) for m in chunk.messages()] == [
        (i + 1, b"s.%d" % i, b"payload %d" % i) for i in range(3)
    ]
    assert (chunk.flags, chunk.first, chunk.next) == (3, 1, 4)
    assert chunk.incarnation == js.stream("S").created_ns


def test_seq_end_seq_and_subjects_choose(js: JetStreamFixture) -> None:
    # given
    for i in range(10):
        js.publish(f"s.{i % 2}", b"x")
    # when
    (chunk,) = chunks(js, {"seq": 3, "end_seq": 9, "subjects": ["s.0", "t.>"]})
    # then
    assert [entry.seq for entry in chunk.entries] == [3, 5, 7]
    assert (chunk.flags, chunk.next) == (3, 9)


def test_sizes_bound_what_one_request_and_one_message_get(js: JetStreamFixture) -> None:
    # given
    for _ in range(100):
        js.publish("s.a", b"x" * 1000)
    # when
    frames = ask(js.user, READ, {"max_bytes": 20_000, "chunk_bytes": 8_000})
    # then
    assert max(len(frame.payload) for frame in frames) <= 8_000
    assert 15_000 < sum(len(frame.payload) for frame in frames) <= 20_000
    got = [decode(frame.payload) for frame in frames]
    assert [chunk.is_last for chunk in got] == [False, False, True]
    assert not got[-1].is_end
    assert chunks(js, {"seq": got[-1].next})[-1].next == 101


def test_sizes_out_of_bounds_are_the_nearest_in_bounds(js: JetStreamFixture) -> None:
    # given
    for _ in range(10):
        js.publish("s.a", b"x" * 500)
    # then
    assert len(chunks(js, {"max_bytes": 1, "chunk_bytes": 1})[0].entries) == 1
    assert len(chunks(js, {"max_bytes": 1 << 62, "chunk_bytes": 1 << 62})[0].entries) == 10


def test_a_client_with_little_room_gets_less_and_stays(js: JetStreamFixture) -> None:
    # given
    js.node.settings.max_pending = 60_000
    for _ in range(100):
        js.publish("s.a", b"x" * 1000)
    js.user.session.apply_settings()
    # when
    first = chunks(js)
    # then
    assert 10 < sum(len(chunk.entries) for chunk in first) < 40
    assert first[-1].flags == 1
    assert not js.user.link.closed


def test_a_client_without_room_gets_an_empty_chunk(js: JetStreamFixture) -> None:
    # given
    js.publish("s.a", b"x" * 5000)
    js.user.link.unsent = js.node.settings.max_pending - 8000
    # when
    (chunk,) = chunks(js)
    # then
    assert (chunk.entries, chunk.flags, chunk.first, chunk.next) == ((), 1, 1, 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"seq": -1}, (400, 10025, "invalid JSON: json: cannot unmarshal number -1 into Go struct field")),
        ({"sequence": 1}, (400, 10025, 'invalid JSON: json: unknown field "sequence"')),
        ({"subjects": "a"}, (400, 10025, "invalid JSON: json: cannot unmarshal string")),
        (b"seq 5", (400, 10025, "invalid JSON: ")),
        (b'{"seq": 5', (400, 10025, "invalid JSON: ")),
        (b"[]", (400, 10025, "invalid JSON: ")),
        ({"seq": 5, "end_seq": 4}, (400, 20003, "bad bulk read: end_seq 4 is before seq 5: ")),
        ({"max_bytes": -1}, (400, 20003, "bad bulk read: max_bytes is -1: ")),
        ({"chunk_bytes": -9}, (400, 20003, "bad bulk read: chunk_bytes is -9: ")),
        ({"subjects": ["a", "b..c"]}, (400, 20003, 'bad bulk read: "b..c" in subjects is no subject')),
        ({"subjects": [""]}, (400, 20003, 'bad bulk read: "" in subjects is no subject')),
        ({"subjects": ["a"] * 1001}, (400, 20003, "bad bulk read: 1001 subjects: 1000 are the most")),
        ({"created": "yesterday"}, (400, 20003, 'bad bulk read: created is "yesterday": ')),
        ({"created": "2020-01-01T00:00:00Z"}, (404, 20002, "stream S was created ")),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    js: JetStreamFixture, body: Any, told: tuple[int, int, str]
) -> None:
    code, number, text = error(js, READ, body)
    assert (code, number, text[: len(told[2])]) == told


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"offset": -1}, "bad bulk read: offset is -1: "),
        ({"seq": 1}, 'invalid JSON: json: unknown field "seq"'),
    ],
)
def test_a_wrong_list_request_is_told_what_is_wrong(js: JetStreamFixture, body: Any, text: str) -> None:
    assert error(js, LIST, body)[2].startswith(text)


@pytest.mark.parametrize("subject", [LIST, READ])
def test_a_stream_that_is_not_there_is_not_found(js: JetStreamFixture, subject: str) -> None:
    assert error(js, subject[:-1] + "T", b"") == (404, 10059, "stream not found")


@pytest.mark.parametrize("subject", [LIST, READ])
def test_a_stream_without_direct_gets_serves_no_bulk_reads(js: JetStreamFixture, subject: str) -> None:
    # given
    js.add("T", subjects=["t"])
    # then
    code, number, text = error(js, subject[:-1] + "T", b"")
    assert (code, number) == (503, 20001)
    assert text == "stream T does not allow bulk reads: set allow_direct in its configuration"


def test_a_reader_of_the_stream_before_this_one_is_told(js: JetStreamFixture) -> None:
    # given
    created = js.api("STREAM.INFO.S")["created"]
    (chunk,) = chunks(js, {"created": created})
    js.advance(seconds=1)
    js.api("STREAM.DELETE.S")
    js.add("S", subjects=["s.>"], allow_direct=True)
    # then
    assert chunk.flags == 3
    assert error(js, READ, {"created": created})[:2] == (404, 20002)


def test_a_list_names_segments_and_the_directory(js: JetStreamFixture) -> None:
    # given
    js.add("F", subjects=["f"], allow_direct=True, storage="file")
    for _ in range(5):
        js.publish("f", b"xyz")
    # when
    (frame,) = ask(js.user, "$JS.API.PYJS.BULK.LIST.F")
    answer = json.loads(frame.payload)
    # then
    rows = answer.pop("segments")
    assert answer == {
        "type": "io.pyjs.api.v1.bulk_list_response",
        "stream": "F",
        "created": js.api("STREAM.INFO.F")["created"],
        "first_seq": 1,
        "last_seq": 5,
        "messages": 5,
        "bytes": js.state("F")["bytes"],
        "directory": f"{js.options.jetstream.store_dir}/$G/streams/F/msgs",
        "offset": 0,
        "limit": bulk.LIST_PAGE,
        "total": 1,
    }
    assert [
        (row["number"], row["base_seq"], row["messages"], row["sealed"], row["form"]) for row in rows
    ] == [(1, 1, 5, False, 0)]
    assert rows[0]["first_ts"] <= rows[0]["last_ts"]


def test_a_list_comes_in_pages(js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(bulk, "LIST_PAGE", 2)
    for _ in range(4096 * 2 + 1):
        js.stream("S").store.store(b"s.a", b"", b"", 1)
    # when
    pages = [json.loads(ask(js.user, LIST, {"offset": at})[0].payload) for at in (0, 2, 4)]
    # then
    assert [len(page["segments"]) for page in pages] == [2, 1, 0]
    assert {page["total"] for page in pages} == {3}
    assert "directory" not in pages[0]


def test_a_request_without_reply_subject_gets_nothing(js: JetStreamFixture) -> None:
    js.publish("s.a")
    js.user.send(b"SUB > all\r\n")
    js.user.take()
    js.user.send(b"PUB %b 0\r\n\r\n" % READ.encode())
    assert [frame.subject for frame in js.user.frames()] == [READ.encode()]


def test_large_answers_reach_several_receivers_whole(js: JetStreamFixture) -> None:
    # given
    for _ in range(100):
        js.publish("s.a", b"x" * 2000)
    js.user.send(b"SUB _INBOX.> other\r\n")
    # when
    frames = ask(js.user, READ)
    # then
    assert len(frames) == 2
    assert frames[0].payload == frames[1].payload
    assert len(decode(frames[0].payload).messages()) == 100
