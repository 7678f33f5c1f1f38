"""Streams in files: restarts, syncs that acks wait for, writes that fail."""

from __future__ import annotations

import errno
from typing import cast

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.stream import Stream

S = 1_000_000_000


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def add(js: JetStreamFixture, name: str, **config: object) -> None:
    js.add(name, subjects=[f"{name.lower()}.>"], storage="file", **config)


def test_streams_come_back_after_a_restart(js: JetStreamFixture) -> None:
    add(js, "A", description="kept", max_msgs=3, metadata={"k": "v"})
    for i in range(5):
        js.publish("a.x", b"%d" % i)
    js.add("M", subjects=["m"])
    before = js.api("STREAM.INFO.A")

    again = js.restart()
    after = again.api("STREAM.INFO.A")

    assert {**before, "ts": "", "cluster": 0} == {**after, "ts": "", "cluster": 0}
    assert again.payloads("A") == [b"2", b"3", b"4"]
    assert again.publish("a.x") == {"stream": "A", "seq": 6}
    assert again.error("STREAM.INFO.M")[1] == 10059


def test_a_deleted_stream_stays_deleted(js: JetStreamFixture) -> None:
    add(js, "A")
    js.publish("a.x")
    js.api("STREAM.DELETE.A")
    again = js.restart()
    assert again.api("STREAM.NAMES")["streams"] is None


def test_an_update_is_kept(js: JetStreamFixture) -> None:
    add(js, "A")
    js.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["other"], "allow_direct": True})
    again = js.restart()
    assert again.publish("other")["seq"] == 1
    assert again.ask("$JS.API.DIRECT.GET.A.other").payload == b"x"


def test_the_dedupe_window_is_learned_from_what_is_stored(js: JetStreamFixture) -> None:
    add(js, "A", duplicate_window=10 * S)
    js.publish("a.x", Nats_Msg_Id="old")
    js.advance(seconds=8)
    js.publish("a.x", Nats_Msg_Id="new")
    again = js.restart().at(js.clock.now_ns() + 4 * S)
    assert again.publish("a.x", Nats_Msg_Id="new")["duplicate"] is True
    assert again.refused("a.x", Nats_Expected_Last_Msg_Id="zz")[2] == "wrong last msg ID: new"
    assert again.publish("a.x", Nats_Msg_Id="old") == {"stream": "A", "seq": 3}


def test_expiry_goes_on_after_a_restart(js: JetStreamFixture) -> None:
    add(js, "A", max_age=10 * S, allow_msg_ttl=True)
    js.publish("a.x", b"ttl", Nats_TTL="12s")
    js.publish("a.x", b"never", Nats_TTL="never")
    js.publish("a.x", b"plain")
    again = js.restart()
    again.advance(seconds=9)
    assert again.payloads("A") == [b"ttl", b"never", b"plain"]
    again.advance(seconds=2)
    assert again.payloads("A") == [b"never"]


# -- sync before ack ---------------------------------------------------------------------------------------------


@pytest.fixture
def always() -> JetStreamFixture:
    return JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, sync_always=True)))


def publish(js: JetStreamFixture, inbox: bytes) -> list[Stream]:
    """Publish one message; return the streams that ask for a sync."""
    js.user.send(b"PUB a.x _INBOX.%b 1\r\nx\r\n" % inbox)
    return cast(list[Stream], js.node.turn_state.take("unsynced"))


def test_acks_leave_when_their_records_are_synced(always: JetStreamFixture) -> None:
    add(always, "A")
    always.user.send(b"SUB _INBOX.> 1\r\n")
    stream = always.stream("A")

    assert publish(always, b"1") == [stream]
    job = stream.begin_sync()
    assert job
    publish(always, b"2")
    assert always.user.payloads() == []

    stream.finish_sync(job())
    always.turn()
    assert always.user.payloads() == [b'{"stream":"A","seq":1}']
    second = stream.begin_sync()
    assert second
    stream.finish_sync(second())
    always.turn()
    assert always.user.payloads() == [b'{"stream":"A","seq":2}']


def test_a_failed_sync_is_told_and_never_believed(always: JetStreamFixture) -> None:
    add(always, "A")
    always.user.send(b"SUB _INBOX.> 1\r\n")
    publish(always, b"1")
    always.stream("A").begin_sync()

    always.stream("A").finish_sync(OSError(errno.EIO, "gone"))
    always.turn()
    (answer,) = always.user.payloads()

    assert b'"err_code":10077' in answer
    assert always.stream("A").store.failed


# -- writes that fail --------------------------------------------------------------------------------------------


class FullDisk(OsDisk):
    """Has no room while `full`."""

    full = False

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._check()
        super().write_at(fd, data, offset)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        self._check()
        super().allocate(fd, offset, size)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_refuses_and_later_takes_again() -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    add(js, "A")
    js.publish("a.x", b"1", Nats_Msg_Id="one")

    disk.full = True
    error = js.refused("a.x", b"2", Nats_Msg_Id="two")
    assert (error[0], error[1]) == (503, 10077)
    assert "No space left" in error[2]
    assert js.refused("a.x", b"3")[1] == 10077
    disk.full = False
    js.advance(seconds=3)

    # What failed was not kept, so its id is no duplicate.
    assert "duplicate" not in js.publish("a.x", b"2", Nats_Msg_Id="two")
    assert js.payloads("A") == [b"1", b"2"]
    assert js.publish("a.x", Nats_Msg_Id="one")["duplicate"] is True
