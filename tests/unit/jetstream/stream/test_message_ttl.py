"""Messages with their own TTL."""

from __future__ import annotations

import errno

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.jetstream.stream.message_ttl import NEVER, is_marker, parse_ttl_ns, with_least_ttl

S = 1_000_000_000


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


@pytest.mark.parametrize(
    ("text", "ttl_ns"),
    [
        (b"1s", S),
        (b"1.5s", S),
        (b"1m", 60 * S),
        (b"60", 60 * S),
        (b"never", NEVER),
        (b"NEVER", NEVER),
        (b"500ms", None),
        (b"-5", None),
        (b"0", None),
        (b"zz", None),
    ],
)
def test_times_to_live_are_whole_seconds(text: bytes, ttl_ns: int | None) -> None:
    assert parse_ttl_ns(text) == ttl_ns


def test_a_message_expires_by_its_own_time(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], allow_msg_ttl=True)
    js.publish("s", b"long")
    js.publish("s", b"2s", Nats_TTL="2s")
    js.publish("s", b"1s", Nats_TTL="1s")
    js.advance(milliseconds=1100)
    assert js.payloads("S") == [b"long", b"2s"]
    js.advance(seconds=1)
    assert js.payloads("S") == [b"long"]


def test_never_outlives_max_age(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], allow_msg_ttl=True, max_age=S)
    js.publish("s", b"never", Nats_TTL="never")
    js.publish("s", b"minute", Nats_TTL="1m")
    js.publish("s", b"plain")
    js.advance(seconds=3)
    assert js.payloads("S") == [b"never"]


def test_a_bad_time_to_live_is_refused(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], allow_msg_ttl=True)
    assert js.refused("s", Nats_TTL="zz") == (400, 10165, "invalid per-message TTL")


def test_the_last_of_a_subject_leaves_a_marker(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], max_age=S, subject_delete_marker_ttl=2 * S)
    js.publish("s.a")
    js.publish("s.a")
    js.advance(milliseconds=1200)
    store = js.stream("S").store
    marker = store.get(3)

    assert store.msgs == 1
    assert marker
    assert (marker.subject, marker.payload) == (b"s.a", b"")
    assert (
        marker.headers
        == b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 2s\r\nNats-Rollup: sub\r\n\r\n"
    )
    js.advance(seconds=3)
    assert (store.msgs, store.last_seq) == (0, 3)


def test_a_time_to_live_is_raised_to_that_of_markers(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], subject_delete_marker_ttl=5 * S)
    js.publish("s.a", b"x", A="b", Nats_TTL="1s", C="d")
    message = js.stream("S").store.get(1)
    assert message
    assert message.headers == b"NATS/1.0\r\nA: b\r\nC: d\r\nNats-TTL: 5\r\n\r\n"
    js.advance(seconds=4)
    assert js.stream("S").store.msgs == 1


class Unreadable(OsDisk):
    """Opens no segment for reading once it has an error number."""

    error = 0

    def open_read_only(self, path: str) -> int:
        if self.error and path.endswith(".seg"):
            raise OSError(self.error, "not now", path)
        return super().open_read_only(path)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_messages_that_cannot_be_read_expire_when_the_others_do(error: int) -> None:
    disk = Unreadable()
    js = JetStreamFixture(disk=disk)
    js.add("S", subjects=["s"], storage="file", max_age=S, max_bytes=1 << 18, allow_msg_ttl=True)
    for number in range(8):  # in several segments
        js.publish("s", b"%030000d" % number)
        js.advance(milliseconds=100)
    disk.error = error
    js.advance(milliseconds=550)
    assert (js.stream("S").store.first_seq, js.stream("S").store.msgs) == (5, 4)


def test_a_ttl_of_half_a_million_parts_is_none() -> None:
    assert parse_ttl_ns(b"1s" * 500) == 500 * S
    assert parse_ttl_ns(b"1s" * 500_000) is None
    assert parse_ttl_ns(b"0" * 500_000 + b"5") == 5 * S


MANY = 60_000  # more messages than one turn drops


def all_published(js: JetStreamFixture, header: bytes) -> None:
    """Publish MANY messages, each on its own subject."""
    js.user.send(
        b"".join(b"HPUB s.%d %d %d\r\n%b\r\n" % (n, len(header), len(header), header) for n in range(MANY))
    )
    assert js.stream("S").store.msgs == MANY


@pytest.mark.parametrize(
    ("config", "header"),
    [
        ({}, b"NATS/1.0\r\nNats-TTL: 2\r\n\r\n"),
        ({"max_age": 2 * S}, b"NATS/1.0\r\nA: b\r\n\r\n"),
    ],
)
def test_many_that_expire_together_go_over_some_turns(
    js: JetStreamFixture, config: dict[str, int], header: bytes
) -> None:
    js.add("S", subjects=["s.*"], allow_msg_ttl=True, **config)
    all_published(js, header)
    js.clock.advance(3 * S)
    left = []

    js.node.turn(js.clock.now_ns())
    while js.node.has_work:
        left.append(js.stream("S").store.msgs)
        js.node.turn(js.clock.now_ns())

    assert len(left) > 1
    assert left == sorted(left, reverse=True)
    assert js.stream("S").store.msgs == 0
    assert js.stream("S").aging.lifetimes.size == 0


def test_a_stream_that_is_deleted_while_messages_expire_is_gone(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_msg_ttl=True)
    all_published(js, b"NATS/1.0\r\nNats-TTL: 2\r\n\r\n")
    js.clock.advance(3 * S)
    js.node.turn(js.clock.now_ns())

    assert js.api("STREAM.DELETE.S")["success"]


def test_those_that_never_expire_do_not_keep_the_others(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], allow_msg_ttl=True, max_age=S)
    for number in range(4):
        js.publish("s", b"never", Nats_TTL="never")
        js.publish("s", b"plain %d" % number)
        js.advance(milliseconds=300)

    js.advance(milliseconds=500)
    assert js.payloads("S") == [b"never"] * 4 + [b"plain 3"]
    js.advance(seconds=2)
    js.api("STREAM.PURGE.S", {"keep": 1})
    js.publish("s", b"last")
    js.advance(seconds=2)
    assert js.payloads("S") == [b"never"]


def test_a_purge_of_a_key_value_client_is_a_marker() -> None:
    assert is_marker(b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n")
    assert is_marker(b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n")
    assert not is_marker(b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")
    assert not is_marker(b"")


@pytest.mark.parametrize(
    ("given", "raised"),
    [
        (b"Nats-TTL: 5m\r\n", b"Nats-TTL: 3600\r\n"),
        (b"A: 1\r\nNats-TTL: 5m\r\nB: 2\r\nNats-TTL: 2h\r\n", b"A: 1\r\nB: 2\r\nNats-TTL: 3600\r\n"),
        (b"Nats-TTL: 5m\r\nnats-ttl: 3h\r\n", b"nats-ttl: 3h\r\nNats-TTL: 3600\r\n"),
        (b"Nats-TTL: 2h\r\nNats-TTL: 5m\r\n", None),
    ],
)
def test_a_raised_ttl_replaces_all_others(given: bytes, raised: bytes | None) -> None:
    found = with_least_ttl(b"NATS/1.0\r\n%b\r\n" % given, 3600 * S)

    assert found == (None if raised is None else b"NATS/1.0\r\n%b\r\n" % raised)
