"""Mirrors and sources with their own consumer: the messages that they take, acknowledge, and take again."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture
from tests.unit.jetstream.stream.features.test_batch_commits import KIB, SlowDisk, one_turn

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.testing import RawClient

COPIES = ("mirror", "source")
BUSY = 16  # the number of other streams
CONSUMER = {"name": "c", "deliver_subject": "d.c"}


def origin(js: JetStreamFixture, storage: str = "file", **more: Any) -> None:
    js.add("O", storage=storage, subjects=["o.>"], **more)
    consume(js)


def consume(js: JetStreamFixture, policy: str = "flow_control") -> None:
    config = {"durable_name": "c", "ack_policy": policy, "deliver_subject": "d.c"}
    answer = js.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": config})
    assert "error" not in answer, answer


def copy(js: JetStreamFixture, kind: str, storage: str = "file", **more: Any) -> None:
    place = {"name": "O", "consumer": CONSUMER}
    js.add("C", storage=storage, **({"mirror": place} if kind == "mirror" else {"sources": [place]}), **more)
    settle(js)


def settle(js: JetStreamFixture, seconds: int = 0) -> None:
    js.advance(seconds=seconds)


def fill(js: JetStreamFixture, *numbers: int) -> None:
    for number in numbers:
        js.publish("o.a", b"%d" % number)
    settle(js)


def numbers(js: JetStreamFixture) -> list[int]:
    return [int(payload) for payload in js.payloads("C")]


def report(js: JetStreamFixture) -> dict[str, Any]:
    info = js.api("STREAM.INFO.C")
    shown: dict[str, Any] = info["mirror"] if "mirror" in info else info["sources"][0]
    return shown


def consumer(js: JetStreamFixture) -> dict[str, Any]:
    return js.api("CONSUMER.INFO.O.c")


@pytest.mark.parametrize("kind", COPIES)
def test_what_the_consumer_delivers_is_taken_and_acknowledged(kind: str) -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    fill(js, 1, 2)
    # when
    copy(js, kind)
    fill(js, 3)
    # then
    assert numbers(js) == [1, 2, 3]
    settle(js, 3)
    info = consumer(js)
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (3, 0)
    assert report(js)["lag"] == 0


@pytest.mark.parametrize("kind", COPIES)
def test_a_restart_takes_nothing_twice(kind: str) -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, kind)
    fill(js, 1, 2)
    # when
    again = js.restart()
    settle(again)
    fill(again, 3)
    # then
    assert numbers(again) == [1, 2, 3]


@pytest.mark.parametrize("kind", COPIES)
def test_a_consumer_made_later_is_found_by_its_first_heartbeat(kind: str) -> None:
    # given
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"])
    copy(js, kind)
    settle(js, 6)
    # when
    consume(js)
    fill(js, 1)
    settle(js, 2)
    settle(js, 2)
    # then
    assert numbers(js) == [1]


@pytest.mark.parametrize("kind", COPIES)
def test_a_consumer_of_another_ack_policy_is_reported_and_asked_again(kind: str) -> None:
    # given
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"])
    consume(js, "none")
    fill(js, 1)
    # when
    copy(js, kind)
    # then
    assert report(js)["error"]["err_code"] == (10214 if kind == "mirror" else 10217)
    assert consumer(js)["delivered"]["stream_seq"] == 0
    # when
    js.api("CONSUMER.DELETE.O.c")
    consume(js)
    settle(js, 16)
    # then
    assert numbers(js) == [1]
    assert "error" not in report(js)


@pytest.mark.parametrize("kind", COPIES)
def test_a_new_origin_with_a_new_consumer_is_copied(kind: str) -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, kind)
    fill(js, 1, 2)
    # when
    js.api("STREAM.DELETE.O")
    settle(js, 1)
    origin(js)
    fill(js, 3, 4, 5)
    settle(js, 3)
    settle(js, 3)
    # then
    assert numbers(js) == ([1, 2, 5] if kind == "mirror" else [1, 2, 3, 4, 5])


@pytest.mark.parametrize("kind", COPIES)
def test_a_full_target_takes_the_refused_message_when_there_is_room(kind: str) -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, kind, discard="new", max_msgs=2)
    fill(js, 1, 2, 3, 4)
    assert numbers(js) == [1, 2]
    # when
    js.api("STREAM.PURGE.C")
    settle(js, 8)
    # then
    assert numbers(js) == [3, 4]


@pytest.mark.parametrize("kind", COPIES)
def test_a_gap_in_the_deliveries_leads_to_a_reset(kind: str) -> None:
    # given
    js = JetStreamFixture()
    other = js.client()
    other.send(b"SUB $JS.API.CONSUMER.RESET.O.c 1\r\n")
    origin(js)
    copy(js, kind)
    fill(js, 1)
    assert len(other.frames()) == 1
    # when
    js.engine.account.send(b"d.c", b"x", b"", b"$JS.ACK.O.c.1.9.7.1700000000000000000.0")
    settle(js)
    fill(js, 2)
    settle(js, 3)
    # then
    assert numbers(js) == [1, 2]
    assert len(other.frames()) == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"no.ack.subject",
        b"$JS.ACK.O.other.1.1.1.1700000000000000000.0",
        b"$JS.ACK.O.c.2.1.1.1700000000000000000.0",
        b"$JS.ACK.O.c.1.x.1.1700000000000000000.0",
        b"$JS.ACK.O.c.1..1.1700000000000000000.0",
        b"$JS.ACK.O.c.1.99999999999999999999.1.1700000000000000000.0",
        b"$JS.ACK.O.c.1.1.1.1700000000000000000.0.more",
        b"$KV.ACK.O.c.1.1.1.1700000000000000000.0",
    ],
)
def test_a_message_that_is_no_delivery_is_ignored(reply: bytes) -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, "mirror")
    # clients may not send such a reply subject
    js.engine.account.send(b"d.c", b"forged", b"", reply)  # clients may not send such a reply subject
    settle(js)
    fill(js, 1)
    # then
    assert numbers(js) == [1]


def test_deliveries_with_long_ack_subjects_are_taken() -> None:
    # given
    options = Options()
    options.feature_flags["js_ack_fc_v2"] = True
    js = JetStreamFixture(options)
    origin(js)
    # when
    copy(js, "source")
    fill(js, 1, 2)
    # then
    assert numbers(js) == [1, 2]


def test_a_silent_consumer_is_asked_again() -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, "mirror")
    fill(js, 1)
    # when
    js.api("CONSUMER.DELETE.O.c")
    consume(js)
    settle(js, 16)
    fill(js, 2)
    settle(js, 2)
    # then
    assert numbers(js) == [1, 2]


def test_a_mirror_of_acknowledged_messages_starts_after_them() -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, "mirror")
    fill(js, 1, 2, 3)
    settle(js, 3)
    js.api("STREAM.DELETE.C")
    # when
    copy(js, "mirror")
    fill(js, 4)
    settle(js, 2)
    # then
    assert numbers(js) == [4]
    assert js.state("C")["first_seq"] == 4


def test_nothing_is_acknowledged_that_could_not_be_written() -> None:
    # given
    class Full(OsDisk):
        full = False

        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write_at(fd, data, offset)

    disk = Full()
    js = JetStreamFixture(disk=disk)
    origin(js, storage="memory", retention="workqueue")
    copy(js, "source")
    fill(js, 1)
    # when
    disk.full = True
    fill(js, 2)
    settle(js, 4)
    # then
    assert js.state("O")["last_seq"] == 2
    assert js.state("O")["messages"] >= 1
    # when
    disk.full = False
    settle(js, 16)
    # then
    assert numbers(js) == [1, 2]


def test_with_sync_always_a_copy_is_acknowledged_after_its_sync() -> None:
    # given
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, sync_always=True)))
    origin(js, storage="memory", retention="workqueue")
    copy(js, "source")
    # when
    js.user.send(b"PUB o.a 1\r\n1\r\n")
    settle(js, 2)
    stream = js.stream("C")
    before = numbers(js), js.state("O")["messages"]
    job = stream.begin_sync()
    assert job is not None
    stream.finish_sync(job())
    settle(js, 2)
    # then
    assert before == ([1], 1)
    assert js.state("O")["messages"] == 0


def test_an_updated_stream_leaves_the_consumer() -> None:
    # given
    js = JetStreamFixture()
    origin(js)
    copy(js, "source")
    fill(js, 1)
    # when
    js.api("STREAM.UPDATE.C", {"name": "C", "subjects": ["c"]})
    fill(js, 2)
    # then
    assert numbers(js) == [1]
    assert js.api("CONSUMER.NAMES.O")["consumers"] == ["c"]
    assert "push_bound" not in consumer(js)


@pytest.mark.parametrize(
    "answer", [b"no json", b"[]", b"{}", b'{"config":null}', b'{"config":{"ack_policy":"flow_control"}}']
)
def test_an_answer_that_is_none_is_reported(answer: bytes) -> None:
    # given
    js = JetStreamFixture()
    other = js.client()
    other.send(b"SUB poison.CONSUMER.RESET.O.c 1\r\n")
    place = {"name": "O", "consumer": CONSUMER, "external": {"api": "poison", "deliver": ""}}
    # when
    js.add("C", sources=[place])
    settle(js)
    request = other.frames()[-1]
    other.send(b"PUB %b %d\r\n%b\r\n" % (request.reply, len(answer), answer))
    settle(js)
    # then
    assert report(js)["error"]["err_code"] == 10045


def agree(api: RawClient, seq: int) -> None:
    """Answer the request for a reset, without running a turn."""
    answer = {"config": {"ack_policy": "flow_control"}, "delivered": {"stream_seq": seq}}
    body = json.dumps(answer).encode()
    api.session.receive_data(b"PUB %b %d\r\n%b\r\n" % (api.frames()[-1].reply, len(body), body))


@pytest.mark.parametrize("seq", [-1, 2**64 - 2, 2**64 - 1, 2**64 + 5])
@pytest.mark.parametrize("kind", COPIES)
def test_a_sequence_that_no_message_can_have_is_reported_and_asked_again(kind: str, seq: int) -> None:
    # given
    js = JetStreamFixture()
    other = js.client()
    other.send(b"SUB poison.CONSUMER.RESET.O.c 1\r\n")
    place = {"name": "O", "consumer": CONSUMER, "external": {"api": "poison", "deliver": ""}}
    js.add("C", **({"mirror": place} if kind == "mirror" else {"sources": [place]}))
    settle(js)
    # when
    agree(other, seq)
    settle(js)
    # then
    assert report(js)["error"]["err_code"] == (10029 if kind == "mirror" else 10045)
    assert js.state("C")["last_seq"] == 0
    settle(js, 3)
    assert len(other.frames()) == 1


class Remote:
    """A stream that copies O of another server; the test plays that server's API and deliveries."""

    def __init__(self) -> None:
        self.js = js = JetStreamFixture()
        self.disk = js.node.disk = SlowDisk(js.clock)
        self.api = js.client()
        self.api.send(b"SUB far.CONSUMER.RESET.O.c 1\r\n")
        place = {"name": "O", "consumer": CONSUMER, "external": {"api": "far", "deliver": ""}}
        js.add("C", storage="file", sources=[place])
        for number in range(BUSY):
            js.add(f"B{number}", storage="file", subjects=[f"b.{number}"])
        settle(js)
        agree(self.api, 0)
        settle(js, 3)

    def be_busy(self) -> None:
        """Make the commits of other streams take several turns."""
        for number in range(BUSY):
            self.js.engine.account.send(b"b.%d" % number, bytes(512 * KIB))

    def deliver(self, seq: int, cseq: int) -> None:
        """Deliver a message, without running a turn."""
        reply = b"$JS.ACK.O.c.1.%d.%d.1700000000000000000.0" % (seq, cseq)
        self.js.engine.account.send(b"d.c", b"%d" % seq, b"", reply)


def test_a_copy_that_waits_for_its_commit_is_not_taken_again_after_a_reset() -> None:
    # given
    far = Remote()
    far.be_busy()
    far.deliver(1, 1)
    # when
    far.deliver(9, 7)
    one_turn(far.js)
    agree(far.api, 0)
    one_turn(far.js)
    far.deliver(1, 1)
    settle(far.js, 1)
    # then
    assert far.js.payloads("C") == [b"1"]


def test_a_copy_that_cannot_be_committed_is_taken_after_the_next_reset() -> None:
    # given
    far = Remote()
    far.be_busy()
    far.deliver(1, 1)
    # when
    far.disk.room = 0
    far.deliver(9, 7)
    one_turn(far.js)
    # then
    assert "no space" in report(far.js)["error"]["description"]
    # when
    far.disk.room = 1 << 40
    settle(far.js, 3)
    agree(far.api, 0)
    settle(far.js)
    far.deliver(1, 1)
    settle(far.js, 1)
    # then
    assert far.js.payloads("C") == [b"1"]
    assert "error" not in report(far.js)


def test_a_late_sync_of_copies_of_a_former_origin_counts_nothing_for_its_successor() -> None:
    # given
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, sync_always=True)))
    origin(js, storage="memory", retention="workqueue")
    copy(js, "source")
    stream = js.stream("C")
    js.user.send(b"".join(b"PUB o.a 1\r\n%d\r\n" % number for number in range(5)))
    job = stream.begin_sync()
    assert job is not None
    # when
    js.api("STREAM.DELETE.O")
    settle(js, 3)
    origin(js, storage="memory", retention="workqueue")
    settle(js, 6)
    js.user.send(b"PUB o.a 1\r\n5\r\nPUB o.a 1\r\n6\r\n")
    stream.finish_sync(job())
    settle(js, 3)
    # then
    assert numbers(js) == [0, 1, 2, 3, 4, 5, 6]
    assert js.state("O")["messages"] == 2
    # when
    job = stream.begin_sync()
    assert job is not None
    stream.finish_sync(job())
    settle(js, 3)
    # then
    assert js.state("O")["messages"] == 0


def test_a_reset_acknowledges_nothing_that_is_not_synced() -> None:
    # given
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, sync_always=True)))
    origin(js, storage="memory", retention="workqueue")
    copy(js, "source")
    stream = js.stream("C")
    js.user.send(b"PUB o.a 1\r\n1\r\n")
    settle(js, 3)
    # when
    js.engine.account.send(b"d.c", b"x", b"", b"$JS.ACK.O.c.1.9.7.1700000000000000000.0")
    settle(js, 3)
    settle(js, 3)
    # then
    assert (numbers(js), js.state("O")["messages"]) == ([1], 1)
    # when
    job = stream.begin_sync()
    assert job is not None
    stream.finish_sync(job())
    settle(js, 3)
    # then
    assert js.state("O")["messages"] == 0
