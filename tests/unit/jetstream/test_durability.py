"""Streams in files: restarts, acks that wait for syncs, failed writes."""

from __future__ import annotations

import errno
import json
from typing import cast

import pytest
from tests.support.disk import LossyDisk
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.state.log_sync import LogSync, LogSyncJob

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
    """Publish one message; return the streams that request a sync."""
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


def test_acks_of_an_async_stream_wait_for_the_write_only(always: JetStreamFixture) -> None:
    add(always, "A", persist_mode="async")
    always.user.send(b"SUB _INBOX.> 1\r\n")
    assert publish(always, b"1") == [always.stream("A")]
    assert always.user.payloads() == [b'{"stream":"A","seq":1}']


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


def test_what_was_taken_before_a_failed_sync_and_not_yet_written_is_refused(js: JetStreamFixture) -> None:
    add(js, "A")
    js.user.send(b"SUB _INBOX.> 1\r\n")
    publish(js, b"1")
    stream = js.stream("A")
    assert stream.begin_sync()
    js.user.session.receive_data(b"PUB a.x _INBOX.2 1\r\nx\r\n")

    stream.finish_sync(OSError(errno.EIO, "gone"))
    js.turn()

    confirmed, refused = js.user.payloads()
    assert confirmed == b'{"stream":"A","seq":1}'
    assert b"sync failed" in refused
    assert js.restart().payloads("A") == [b"x"]


@pytest.mark.parametrize("synced_before", [True, False])
def test_a_sync_between_a_read_and_its_turn_confirms_nothing_of_that_read(synced_before: bool) -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    add(js, "A")
    js.user.send(b"SUB _INBOX.> 1\r\n")
    publish(js, b"1")
    js.user.take()
    stream = js.stream("A")
    while synced_before and (job := stream.begin_sync()):
        stream.finish_sync(job())
    js.user.session.receive_data(b"PUB a.x _INBOX.2 1\r\nx\r\n")

    job = stream.begin_sync()
    assert (job is None) == synced_before
    if job:
        stream.finish_sync(job())
    disk.full = True
    js.turn()

    (refused,) = js.user.payloads()
    assert b'"err_code":10077' in refused


def test_an_ack_that_waits_for_a_sync_waits_for_one_that_covers_its_record(always: JetStreamFixture) -> None:
    add(always, "A")
    always.user.send(b"SUB _INBOX.> 1\r\n")
    publish(always, b"1")
    stream = always.stream("A")
    always.user.session.receive_data(b"PUB a.x _INBOX.2 1\r\nx\r\n")

    job = stream.begin_sync()
    if job:
        stream.finish_sync(job())
    always.turn()
    assert len(always.user.payloads()) < 2

    job = stream.begin_sync()
    assert job
    stream.finish_sync(job())
    always.turn()
    assert always.user.payloads()[-1] == b'{"stream":"A","seq":2}'


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
    assert error[2].startswith("no space left")
    assert js.refused("a.x", b"3")[1] == 10077
    disk.full = False
    js.advance(seconds=3)

    # The failed message was not stored, so its id is no duplicate.
    assert "duplicate" not in js.publish("a.x", b"2", Nats_Msg_Id="two")
    assert js.payloads("A") == [b"1", b"2"]
    assert js.publish("a.x", Nats_Msg_Id="one")["duplicate"] is True


def test_messages_expire_while_the_disk_is_full_and_stay_away() -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    add(js, "A", max_age=10 * S)
    js.publish("a.x", b"1")
    js.advance(seconds=9)
    js.publish("a.x", b"2")
    disk.full = True
    js.advance(seconds=2)  # the first message expires, which cannot be recorded
    assert js.payloads("A") == [b"2"]

    js.advance(seconds=9)
    assert js.payloads("A") == []

    disk.full = False
    js.advance(seconds=3)
    assert js.publish("a.x", b"3")["seq"] == 3
    assert js.restart().payloads("A") == [b"3"]


def test_a_message_whose_marker_cannot_be_stored_expires_when_the_disk_has_room() -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    add(js, "A", max_age=10 * S, subject_delete_marker_ttl=60 * S)
    js.publish("a.x", b"1")
    disk.full = True
    js.refused("a.x", bytes(100))
    js.advance(seconds=12)
    assert js.payloads("A") == [b"1"]

    disk.full = False
    js.advance(seconds=3)

    marker = js.stream("A").store.get(js.state("A")["last_seq"])
    assert marker
    assert b"Nats-Marker-Reason" in marker.headers
    assert js.state("A")["messages"] == 1


@pytest.mark.parametrize(
    ("request_name", "body"),
    [
        ("STREAM.MSG.DELETE.A", b'{"seq":1}'),
        ("STREAM.MSG.DELETE.A", b'{"seq":1,"no_erase":true}'),
        ("STREAM.PURGE.A", b""),
    ],
)
def test_a_store_that_refuses_messages_removes_none(request_name: str, body: bytes) -> None:
    class ReadsOnly(FullDisk):
        """Has no room for new data, but existing bytes can be overwritten."""

        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            if offset + len(data) > self.size_of(fd):
                self._check()
            OsDisk.write_at(self, fd, data, offset)

    disk = ReadsOnly()
    js = JetStreamFixture(disk=disk)
    add(js, "A")
    js.publish("a.x", b"1")
    disk.full = True
    js.refused("a.x", bytes(800_000))

    assert "error" in js.api(request_name, body)

    assert js.payloads("A") == [b"1"]
    assert js.restart().payloads("A") == [b"1"]


# -- answers that wait for the medium ----------------------------------------------------------------------------


class Powered(JetStreamFixture):
    """A server with `sync_interval: always` on a disk that may lose power, and a subscription to `in.>`."""

    def __init__(self, disk: LossyDisk, sync_always: bool = True, store_dir: str = "") -> None:
        self.lossy = disk
        jetstream = JetStreamOptions(enabled=True, sync_always=sync_always, store_dir=store_dir)
        super().__init__(Options(jetstream=jetstream), disk)
        self.listener = self.client()
        self.listener.send(b"SUB in.> 1\r\n")

    def send(self, subject: str, payload: bytes = b"") -> None:
        """Publish with a reply subject to which the listener subscribes."""
        self.user.send(b"PUB %b in.1 %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))

    def heard(self) -> list[bytes]:
        return self.listener.payloads()

    def sync(self) -> None:
        """Do the work of the I/O thread."""
        while unsynced := cast(list[Stream], self.node.turn_state.take("unsynced")):
            for each in unsynced:
                job = each.begin_sync()
                if job is not None:
                    each.finish_sync(job())
            self.turn()

    def call(self, endpoint: str, body: object = b"") -> dict[str, object]:
        """Send an API request, and run syncs until it is answered."""
        self.send(f"$JS.API.{endpoint}", json.dumps(body).encode() if body else b"")
        self.sync()
        answer: dict[str, object] = json.loads(self.heard()[-1])
        return answer

    def lose_power(self) -> Powered:
        """Return a server that starts with the data on the medium."""
        self.lossy.lose_power()
        jetstream = self.node.jetstream
        assert jetstream is not None
        assert jetstream._lock is not None
        jetstream._lock.release()  # as if its process had ended
        again = Powered(LossyDisk(), store_dir=self.options.jetstream.store_dir)
        again.directory = self.directory
        return again


def filled(sync_always: bool = True) -> Powered:
    """Return a server whose file stream A of a.> has three messages."""
    js = Powered(LossyDisk(), sync_always)
    js.call("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
    for payload in (b"1", b"2", b"3"):
        js.send("a.x", payload)
    js.sync()
    assert len(js.heard()) == 3
    return js


@pytest.mark.parametrize(
    ("endpoint", "body", "left"),
    [
        ("STREAM.PURGE.A", b"", []),
        ("STREAM.PURGE.A", b'{"keep":1}', [b"3"]),
        ("STREAM.MSG.DELETE.A", b'{"seq":2}', [b"1", b"3"]),
        ("STREAM.MSG.DELETE.A", b'{"seq":1,"no_erase":true}', [b"2", b"3"]),
    ],
)
def test_a_removal_is_answered_when_it_is_on_the_medium(
    endpoint: str, body: bytes, left: list[bytes]
) -> None:
    js = filled()

    js.send(f"$JS.API.{endpoint}", body)

    assert js.heard() == []
    js.sync()
    (answer,) = js.heard()
    assert json.loads(answer)["success"] is True
    assert js.lose_power().payloads("A") == left


def test_what_a_closing_stream_answers_is_on_the_medium_although_a_sync_is_on_its_way() -> None:
    js = filled()
    js.send("a.x", b"4")
    stream = js.stream("A")
    job = stream.begin_sync()
    assert job
    js.send("a.x", b"5")
    js.send("$JS.API.STREAM.MSG.DELETE.A", b'{"seq":1}')
    assert js.heard() == []

    js.engine.stop()
    js.turn()

    assert len(js.heard()) == 2
    again = js.lose_power()
    assert again.payloads("A") == [b"2", b"3", b"4", b"5"]
    stream.finish_sync(job())
    js.turn()
    assert len(js.heard()) == 1


def test_a_removal_is_answered_at_once_when_syncs_have_an_interval() -> None:
    js = filled(sync_always=False)
    js.send("$JS.API.STREAM.PURGE.A")
    assert json.loads(js.heard()[0])["purged"] == 3


def test_a_removal_that_cannot_be_synced_is_an_error() -> None:
    js = filled()
    js.send("$JS.API.STREAM.PURGE.A")
    stream = js.stream("A")
    assert stream.begin_sync()

    stream.finish_sync(OSError(errno.EIO, "gone"))
    js.turn()

    error = json.loads(js.heard()[0])["error"]
    assert error["err_code"] == 10110
    assert "gone" in error["description"]


def ack_all_confirmed(js: Powered) -> int:
    """Deliver the three messages and ack each with a reply subject; return how many answers arrive at once."""
    config = {"durable_name": "c", "ack_policy": "explicit"}
    js.call("CONSUMER.DURABLE.CREATE.A.c", {"stream_name": "A", "config": config})
    js.send("$JS.API.CONSUMER.MSG.NEXT.A.c", b"3")
    js.sync()
    replies = [frame.reply for frame in js.listener.frames()]
    for reply in replies:
        js.send(reply.decode(), b"+ACK")
    return len(js.heard())


def test_a_confirmed_ack_is_on_the_medium() -> None:
    js = filled()
    assert ack_all_confirmed(js) == 0

    js.sync()

    assert js.heard() == [b"", b"", b""]
    again = js.lose_power()
    floor = cast(dict[str, int], again.call("CONSUMER.INFO.A.c")["ack_floor"])
    assert floor["stream_seq"] == 3


def test_an_ack_is_confirmed_at_once_when_syncs_have_an_interval() -> None:
    assert ack_all_confirmed(filled(sync_always=False)) == 3


def test_acks_are_synced_within_the_interval() -> None:
    js = filled(sync_always=False)
    ack_all_confirmed(js)
    assert js.node.turn_state.unsynced

    js.sync()

    again = js.lose_power()
    floor = cast(dict[str, int], again.call("CONSUMER.INFO.A.c")["ack_floor"])
    assert floor["stream_seq"] == 3


def test_an_ack_whose_sync_fails_is_not_confirmed_and_the_state_is_kept_again() -> None:
    # given
    js = filled()
    ack_all_confirmed(js)
    # when
    for each in cast(list[LogSync], js.node.turn_state.take("unsynced")):
        job = each.begin_sync()
        assert isinstance(job, LogSyncJob)
        job.failed = list(job._paths)
        each.finish_sync(OSError(errno.EIO, "gone"))
    js.turn()
    # then
    assert js.heard() == []
    assert any("can not be synced" in text for _, text in js.log.lines)
    again = js.lose_power()
    floor = cast(dict[str, int], again.call("CONSUMER.INFO.A.c")["ack_floor"])
    assert floor["stream_seq"] == 3
