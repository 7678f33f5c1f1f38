"""Streams with a subject transform: stored subjects, changes of the configuration, and recovery."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import ConnectionLimits, Options

MOVED = {"src": "foo.*", "dest": "bar.$1"}


def subjects(js: JetStreamFixture, name: str) -> list[bytes]:
    store = js.stream(name).store
    found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
    return [message.subject for message in found if message is not None]


def test_a_message_is_stored_under_the_subject_that_the_transform_makes() -> None:
    # given
    js = JetStreamFixture()
    shown = js.add("S", subjects=["foo.>"], subject_transform=MOVED)

    # when
    js.publish("foo.a")
    js.publish("foo.a.b")

    # then
    assert shown["subject_transform"] == MOVED
    assert subjects(js, "S") == [b"bar.a", b"foo.a.b"]


def test_limits_and_conditions_count_by_the_new_subject() -> None:
    # given
    js = JetStreamFixture()
    transform = {"src": "foo.*", "dest": "one"}
    js.add("S", subjects=["foo.*"], max_msgs_per_subject=1, subject_transform=transform)

    # when
    js.publish("foo.a", b"1")
    js.publish("foo.b", b"2")

    # then
    assert js.payloads("S") == [b"2"]
    assert js.refused("foo.c", Nats_Expected_Last_Subject_Sequence="0")[1] == 10071
    assert js.publish("foo.c", Nats_Expected_Last_Subject_Sequence="2")["seq"] == 3


def test_an_update_changes_and_ends_the_transform() -> None:
    # given
    js = JetStreamFixture()
    js.add("S", subjects=["foo.*"], subject_transform=MOVED)

    # when
    js.publish("foo.a")
    asked = {"name": "S", "storage": "memory", "subjects": ["foo.*"]}
    js.api("STREAM.UPDATE.S", asked | {"subject_transform": {"src": "foo.*", "dest": "new.$1"}})
    js.publish("foo.a")
    js.api("STREAM.UPDATE.S", asked)
    js.publish("foo.a")

    # then
    assert subjects(js, "S") == [b"bar.a", b"new.a", b"foo.a"]


def test_the_transform_is_there_after_a_restart() -> None:
    # given
    js = JetStreamFixture()
    js.add("S", storage="file", subjects=["foo.*"], subject_transform=MOVED)
    js.publish("foo.a")

    # when
    js = js.restart()
    js.publish("foo.b")

    # then
    assert subjects(js, "S") == [b"bar.a", b"bar.b"]
    assert js.api("STREAM.INFO.S")["config"]["subject_transform"] == MOVED


def test_a_transform_that_cannot_be_is_refused() -> None:
    js = JetStreamFixture()

    for given, refusal in (
        ({"src": "a..b", "dest": "x"}, (400, 10155, "stream transform source: invalid subject a..b")),
        ({"src": "a.*", "dest": "x.*"}, (400, 10156, "stream transform: invalid subject")),
    ):
        asked = {"name": "S", "subjects": ["a.>"], "subject_transform": given}
        assert js.error("STREAM.CREATE.S", asked) == refusal


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_subject_that_no_record_has_room_for_is_refused(storage: str) -> None:
    # given
    options = Options(limits=ConnectionLimits(max_control_line=200_000))
    js = JetStreamFixture(options)
    js.add("S", subjects=["s.>"], storage=storage)
    js.add("T", subjects=["t.*"], storage=storage, subject_transform={"src": "t.*", "dest": "longer.$1"})

    # when
    kept = js.publish("s." + "a" * 65533)
    refused = js.refused("s." + "a" * 65534)
    made_too_long = js.refused("t." + "a" * 65530, Nats_Msg_Id="1")

    # then
    assert kept["seq"] == 1
    assert refused == made_too_long == (503, 10077, "subject exceeds 65535 bytes")
    assert subjects(js, "S") == [b"s." + b"a" * 65533]
    assert subjects(js, "T") == []
