"""Message ids over restarts: stored at a clean stop, otherwise read from messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.format.window_file import read_parts, write_parts


@pytest.fixture
def js() -> JetStreamFixture:
    """A file stream with three messages, of which the second is removed."""
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage="file", max_msgs=2)
    for number in (1, 2, 3):
        js.publish("s", b"x", Nats_Msg_Id=f"id-{number}")
    js.api("STREAM.MSG.DELETE.S", {"seq": 2})
    return js


def window(js: JetStreamFixture) -> Path:
    return Path(js.directory.name) / "$G/streams/S/window"


def duplicate(js: JetStreamFixture, number: int) -> bool:
    return bool(js.publish("s", b"x", Nats_Msg_Id=f"id-{number}").get("duplicate"))


def warnings(js: JetStreamFixture) -> list[str]:
    assert isinstance(js.node.log, ListLog)
    return [text for level, text in js.node.log.lines if level == "WRN"]


def test_ids_of_removed_messages_are_known_after_a_clean_stop(js: JetStreamFixture) -> None:
    again = js.restart()
    assert again.stream("S").dedupe.last_msg_id == b"id-3"
    assert [duplicate(again, number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert warnings(again) == []


def test_ids_are_read_from_messages_when_something_was_stored_since(js: JetStreamFixture) -> None:
    kept = None
    js.node.stop()
    kept = window(js).read_bytes()
    later = JetStreamFixture(js.options)
    later.directory = js.directory
    later.at(js.clock.now_ns())
    later.publish("s", b"x", Nats_Msg_Id="id-4")
    later.node.stop()
    window(js).write_bytes(kept)
    again = JetStreamFixture(js.options)
    again.directory = js.directory
    again.at(js.clock.now_ns())
    assert [duplicate(again, number) for number in (3, 4)] == [True, True]
    assert not duplicate(again, 1)
    assert warnings(again) == []


@pytest.mark.parametrize("at", [3, 40, -20, -1])
def test_a_damaged_file_is_reported_and_ids_are_read_from_messages(js: JetStreamFixture, at: int) -> None:
    js.node.stop()
    data = bytearray(window(js).read_bytes())
    data[at] ^= 4
    window(js).write_bytes(data)
    again = JetStreamFixture(js.options)
    again.directory = js.directory
    again.at(js.clock.now_ns())
    assert "Duplicate window of stream 'S' is read from messages: " in warnings(again)[0]
    assert [duplicate(again, number) for number in (3, 1)] == [True, False]


def crash(js: JetStreamFixture) -> JetStreamFixture:
    """Return a node on the files of `js` whose duplicate window was not stored."""
    js.node.stop()
    window(js).unlink(missing_ok=True)
    again = JetStreamFixture(js.options)
    again.directory = js.directory
    return again.at(js.clock.now_ns())


@pytest.mark.parametrize("allow_ttl", [False, True])
def test_the_last_message_has_no_id_after_a_crash_if_it_had_none(allow_ttl: bool) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage="file", allow_msg_ttl=allow_ttl)
    js.publish("s", b"x", Nats_Msg_Id="id-1")
    first = crash(js)
    assert first.stream("S").dedupe.last_msg_id == b"id-1"
    first.publish("s", b"x")
    second = crash(first)
    assert second.stream("S").dedupe.last_msg_id == b""
    assert duplicate(second, 1)


@pytest.mark.parametrize(
    "change", [{"total": 1 << 40}, {"count": 1 << 62}, {"count": -1}, {"ids": None}, {"last_id": 5}]
)
def test_nonsense_in_a_whole_file_keeps_no_stream_from_starting(
    js: JetStreamFixture, change: dict[str, object]
) -> None:
    js.node.stop()
    parts = list(read_parts(OsDisk(), str(window(js))))
    write_parts(OsDisk(), str(window(js)), [parts[0] | change])
    again = JetStreamFixture(js.options)
    again.directory = js.directory
    again.at(js.clock.now_ns())
    assert "Duplicate window of stream 'S' is read from messages: " in warnings(again)[0]
    assert duplicate(again, 3)


def test_a_window_for_which_there_is_no_memory_is_read_from_messages(
    js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("pyjs.jetstream.manage.persist.read_parts", no_memory)
    again = js.restart()
    assert "Duplicate window of stream 'S' is read from messages: " in warnings(again)[0]
    assert duplicate(again, 3)


def test_ids_outside_the_window_are_forgotten_over_a_restart(js: JetStreamFixture) -> None:
    js.clock.advance(121 * 10**9)
    again = js.restart()
    assert not duplicate(again, 3)


def test_a_stream_without_ids_keeps_no_file() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage="file")
    js.publish("s")
    js.node.stop()
    assert not window(js).exists()


def test_a_large_window_is_kept_in_parts_and_a_lost_part_costs_only_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyjs.jetstream.manage.streams.PART_IDS", 2)
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage="file")
    for number in range(5):
        js.publish("s", b"x", Nats_Msg_Id=f"id-{number}")
    again = js.restart()
    whole = window(js).read_bytes()
    assert whole.count(b"PYJSMETA") == 3
    assert again.stream("S").dedupe.last_msg_id == b"id-4"
    again.node.stop()
    window(js).write_bytes(whole[: whole.rindex(b"PYJSMETA")])
    last = JetStreamFixture(js.options)
    last.directory = js.directory
    last.at(js.clock.now_ns())
    assert "it ends after 4 of 5 message ids" in warnings(last)[0]
    assert all(duplicate(last, number) for number in range(5))
