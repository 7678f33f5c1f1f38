"""Resets of consumers: state after a restart, operations that wait for the state, and failed writes.

Answers and texts are in tests/conformance/scenarios/consumer/reset.txt.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk


class FailingDisk(OsDisk):
    """A disk whose files cannot be synced while `failing`."""

    failing = False

    def sync_file(self, fd: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_file(fd)


@pytest.fixture
def js() -> Iterator[JetStreamFixture]:
    fixture = JetStreamFixture(disk=FailingDisk())
    fixture.add("S", subjects=["s.*"], storage="file")
    for number in range(5):
        fixture.publish(f"s.{number}")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    fixture.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    fixture.user.send(b"SUB in 1\r\n")
    yield fixture
    fixture.node.stop()


def pull(js: JetStreamFixture, batch: int) -> list[bytes]:
    """Return the ack subjects of the delivered messages, without their times."""
    js.user.take()
    js.user.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c in %d\r\n%d\r\n" % (len(str(batch)), batch))
    return [frame.reply for frame in js.user.frames() if frame.sid == b"1"]


def places(replies: list[bytes]) -> list[tuple[int, int, int]]:
    """Return the number of deliveries, the stream sequence and the consumer sequence of each message."""
    return [tuple(map(int, reply.split(b".")[4:7])) for reply in replies]  # type: ignore[misc]


def test_a_reset_delivers_again_as_if_for_the_first_time(js: JetStreamFixture) -> None:
    for reply in pull(js, 3):
        js.user.send(b"PUB %b 0\r\n\r\n" % reply)
    answer = js.api("CONSUMER.RESET.S.c", {"seq": 2})
    assert (answer["reset_seq"], answer["num_pending"], answer["num_ack_pending"]) == (2, 4, 0)
    assert places(pull(js, 2)) == [(1, 2, 1), (1, 3, 2)]


def test_a_reset_and_what_follows_survive_a_restart(js: JetStreamFixture) -> None:
    pull(js, 5)
    js.api("CONSUMER.RESET.S.c", {"seq": 3})
    first = pull(js, 2)
    js.user.send(b"PUB %b 0\r\n\r\n" % first[0])
    again = js.restart()
    info = again.api("CONSUMER.INFO.S.c")
    assert info["delivered"]["stream_seq"] == 4
    assert info["delivered"]["consumer_seq"] == 2
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (3, 1, 1)
    again.node.stop()


def test_acks_of_deliveries_before_a_reset_count_no_more(js: JetStreamFixture) -> None:
    old = pull(js, 5)
    js.api("CONSUMER.RESET.S.c", {"seq": 2})
    for reply in old:
        js.user.send(b"PUB %b 0\r\n\r\n" % reply)
    info = js.api("CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (1, 4)


def test_a_waiting_pull_request_is_served_from_the_new_position(js: JetStreamFixture) -> None:
    assert len(pull(js, 6)) == 5
    js.user.take()
    answer = js.api("CONSUMER.RESET.S.c", {"seq": 4})
    assert answer["num_waiting"] == 1
    info = js.api("CONSUMER.INFO.S.c")
    assert (info["delivered"]["stream_seq"], info["num_ack_pending"], info["num_waiting"]) == (4, 1, 0)


def test_a_reset_beyond_the_end_waits_for_that_sequence(js: JetStreamFixture) -> None:
    js.api("CONSUMER.RESET.S.c", {"seq": 7})
    js.publish("s.6")
    assert pull(js, 1) == []
    js.publish("s.7")
    assert js.api("CONSUMER.INFO.S.c")["delivered"]["stream_seq"] == 7


@pytest.mark.parametrize("seq", [2**64 - 1, 2**63])
def test_a_sequence_no_message_can_have_is_harmless(js: JetStreamFixture, seq: int) -> None:
    js.api("CONSUMER.RESET.S.c", {"seq": seq})
    js.publish("s.1")
    assert js.api("CONSUMER.RESET.S.c", {"seq": 1})["num_pending"] == 6


def test_a_reset_that_cannot_be_written_is_refused(js: JetStreamFixture) -> None:
    assert isinstance(js.node.disk, FailingDisk)
    js.node.disk.failing = True
    answer = js.api("CONSUMER.RESET.S.c", {"seq": 3})
    js.node.disk.failing = False
    assert answer["error"]["err_code"] == 10204
    assert answer["reset_seq"] == 0
    assert js.api("CONSUMER.RESET.S.c", {"seq": 2})["reset_seq"] == 2


def test_a_consumer_deleted_during_its_reset_answers_both(js: JetStreamFixture) -> None:
    js.hold_jobs = True
    js.user.send(b"SUB api.* 2\r\nPUB $JS.API.CONSUMER.RESET.S.c api.reset 0\r\n\r\n")
    js.user.send(b"PUB $JS.API.CONSUMER.DELETE.S.c api.delete 0\r\n\r\n")
    js.hold_jobs = False
    js.turn()
    subjects = [frame.subject for frame in js.user.frames() if frame.sid == b"2"]
    assert subjects == [b"api.reset", b"api.delete"]
