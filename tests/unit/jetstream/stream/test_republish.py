"""Streams that republish stored messages: when, on which subjects, and with which headers."""

from __future__ import annotations

import errno

import pytest
from tests.support.disk import FaultyDisk
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.gotext import time_text

COPIED = {"src": "foo.*", "dest": "copy.$1"}


def listening(js: JetStreamFixture, subject: bytes = b"copy.>") -> JetStreamFixture:
    js.user.send(b"SUB %b copies\r\n" % subject)
    js.user.take()
    return js


def send(js: JetStreamFixture, data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Send `data` to the server; return subject, headers and payload of republished messages."""
    js.user.send(data)
    return [(each.subject, each.headers, each.payload) for each in js.user.frames() if each.sid == b"copies"]


def block(js: JetStreamFixture, subject: str, seq: int, last: int, more: str = "", first: str = "") -> bytes:
    message = js.stream("S").store.get(seq)
    assert message is not None
    return (
        f"NATS/1.0\r\n{first}Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {seq}\r\n"
        f"Nats-Time-Stamp: {time_text(message.ts)}\r\nNats-Last-Sequence: {last}\r\n{more}\r\n"
    ).encode()


def test_a_kept_message_is_published_again_with_where_it_was_kept() -> None:
    # given
    js = listening(JetStreamFixture())
    js.add("S", subjects=["foo.*"], republish=COPIED)

    # when
    first = send(js, b"PUB foo.a 1\r\n1\r\n")
    second = send(js, b"HPUB foo.a 18 19\r\nNATS/1.0\r\nA: b\r\n\r\n2\r\n")

    # then
    assert first == [(b"copy.a", block(js, "foo.a", 1, 0), b"1")]
    assert second == [(b"copy.a", block(js, "foo.a", 2, 1, first="A: b\r\n"), b"2")]


def test_headers_only_tells_the_size_of_the_payload() -> None:
    js = listening(JetStreamFixture())
    js.add("S", subjects=["foo.*"], republish=COPIED | {"headers_only": True})

    assert send(js, b"PUB foo.a 3\r\nabc\r\n") == [
        (b"copy.a", block(js, "foo.a", 1, 0, more="Nats-Msg-Size: 3\r\n"), b"")
    ]


def test_what_is_refused_known_or_not_matched_is_not_republished() -> None:
    # given
    js = listening(JetStreamFixture())
    js.add("S", subjects=["foo.>"], max_msg_size=40, republish=COPIED)
    with_id = b"HPUB foo.a 28 29\r\nNATS/1.0\r\nNats-Msg-Id: A\r\n\r\n1\r\n"
    assert len(send(js, with_id)) == 1

    # when
    again = send(js, with_id)
    too_large = send(js, b"PUB foo.a 50\r\n%b\r\n" % (b"x" * 50))
    elsewhere = send(js, b"PUB foo.a.b 1\r\n1\r\n")

    # then
    assert again == too_large == elsewhere == []
    assert js.state("S")["messages"] == 2


def test_a_message_that_the_same_batch_evicts_is_republished() -> None:
    # given
    js = listening(JetStreamFixture())
    js.add("S", subjects=["foo.*"], max_msgs_per_subject=1, republish=COPIED)

    # when
    copies = send(js, b"PUB foo.a 1\r\n1\r\nPUB foo.a 1\r\n2\r\n")

    # then
    assert [payload for _, _, payload in copies] == [b"1", b"2"]


def test_nothing_is_republished_that_could_not_be_written() -> None:
    # given
    disk = FaultyDisk()
    js = listening(JetStreamFixture(disk=disk))
    js.add("S", storage="file", subjects=["foo.*"], republish=COPIED)
    assert len(send(js, b"PUB foo.a 1\r\n1\r\n")) == 1

    # when
    disk.at, disk.error, disk.forever = disk.calls, errno.ENOSPC, True

    # then
    assert send(js, b"PUB foo.a 1\r\n2\r\n") == []


def test_the_marker_of_an_expired_subject_is_republished() -> None:
    # given
    js = listening(JetStreamFixture())
    second = 1_000_000_000
    js.add("S", subjects=["foo.*"], max_age=second, subject_delete_marker_ttl=5 * second, republish=COPIED)
    assert len(send(js, b"PUB foo.a 1\r\n1\r\n")) == 1

    # when
    js.advance(milliseconds=1500)

    # then
    marker = "Nats-Marker-Reason: MaxAge\r\nNats-TTL: 5s\r\nNats-Rollup: sub\r\n"
    assert send(js, b"") == [(b"copy.a", block(js, "foo.a", 2, 1, first=marker), b"")]


def test_republishing_goes_on_after_a_restart_and_ends_with_an_update() -> None:
    # given
    js = JetStreamFixture()
    js.add("S", storage="file", subjects=["foo.*"], republish=COPIED)

    # when
    js = listening(js.restart())

    # then
    assert len(send(js, b"PUB foo.a 1\r\n1\r\n")) == 1
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["foo.*"]})
    assert send(js, b"PUB foo.a 1\r\n1\r\n") == []


def test_an_invalid_subject_and_an_empty_destination_republish_nothing() -> None:
    js = listening(JetStreamFixture(), b">")
    js.add("S", subjects=["foo.*"], republish={"src": "foo.*", "dest": "copy.{{split(1,-)}}.x"})
    js.add("E", subjects=["bar"], republish={"src": "bar"})

    assert [subject for subject, _, _ in send(js, b"PUB foo.- 1\r\n1\r\n")] == [b"foo.-"]
    assert [subject for subject, _, _ in send(js, b"PUB bar 1\r\n1\r\n")] == [b"bar"]


CYCLE = "stream configuration for republish destination forms a cycle"
INVALID = "stream configuration for republish with transform from '{}' to '{}' not valid"


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"republish": {"dest": ">"}}, (500, 10052, CYCLE)),
        ({"republish": {"src": "foo.*", "dest": "foo.$1"}}, (500, 10052, CYCLE)),
        ({"republish": {"src": "foo.*", "dest": "x.$2"}}, (500, 10052, INVALID.format("foo.*", "x.$2"))),
        ({"republish": {"src": "foo..a", "dest": "x"}}, (500, 10052, INVALID.format("foo..a", "x"))),
        (
            {"pedantic": True, "republish": {"dest": "x.>"}},
            (400, 10157, "pedantic mode: republish source can not be empty"),
        ),
        (
            {
                "pedantic": True,
                "republish": {"src": ">", "dest": ">"},
                "subject_transform": {"src": "foo.*", "dest": "x.$1"},
            },
            (400, 10157, "pedantic mode: implicit republish based on subject transform"),
        ),
    ],
)
def test_a_republish_that_cannot_be_is_refused(
    fields: dict[str, object], refusal: tuple[int, int, str]
) -> None:
    js = JetStreamFixture()

    assert js.error("STREAM.CREATE.S", {"name": "S", "subjects": ["foo.*"], **fields}) == refusal


def test_everything_may_be_republished_where_the_transform_leaves_the_stream_s_subjects() -> None:
    # given
    js = listening(JetStreamFixture())
    shown = js.add(
        "S",
        subjects=["foo.>"],
        subject_transform={"src": "foo.>", "dest": "copy.>"},
        republish={"src": ">", "dest": ">"},
    )

    # when
    copies = send(js, b"PUB foo.a 1\r\n1\r\n")

    # then
    assert shown["republish"] == {"src": "copy.>", "dest": "copy.>"}
    assert copies == [(b"copy.a", block(js, "copy.a", 1, 0), b"1")]
