"""Messages replaced by a new one are removed when it is in the file, and kept when the disk refuses it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.jetstream.manage import purging

LIMITS: list[dict[str, object]] = [
    {"max_msgs": 2},
    {"max_bytes": 80},
    {"max_msgs_per_subject": 2},
    {"max_msgs": 2, "max_msgs_per_subject": 2, "discard": "new"},
]
ROLLUPS = [{"Nats_Rollup": "all"}, {"Nats_Rollup": "sub"}]


class Disk(OsDisk):
    """Has no room while `full`; `before_write` is called before every write."""

    full = False

    def __init__(self) -> None:
        self.before_write: Callable[[bytes], None] = lambda data: None

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._check()
        self.before_write(bytes(data))
        super().write_at(fd, data, offset)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        self._check()
        super().allocate(fd, offset, size)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


def started(**config: object) -> tuple[JetStreamFixture, Disk]:
    """Return a server and its disk; its file stream A of a.> has the messages "1" and "2"."""
    disk = Disk()
    js = JetStreamFixture(disk=disk)
    js.add("A", subjects=["a.>"], storage="file", allow_rollup_hdrs=True, **config)
    js.publish("a.x", b"1")
    js.publish("a.x", b"2")
    return js, disk


def publish_all(
    js: JetStreamFixture, *messages: tuple[str, bytes], headers: bytes = b""
) -> list[dict[str, object]]:
    """Publish all messages in one turn; return the answers."""
    js.user.send(b"SUB in.1 9\r\n")
    js.user.take()
    data = b""
    for subject, payload in messages:
        size, total = len(headers), len(headers) + len(payload)
        head = (
            b"HPUB %b in.1 %d %d" % (subject.encode(), size, total)
            if size
            else b"PUB %b in.1 %d" % (subject.encode(), total)
        )
        data += head + b"\r\n" + headers + payload + b"\r\n"
    js.user.send(data)
    answers = [json.loads(payload) for payload in js.user.payloads()]
    js.user.send(b"UNSUB 9\r\n")
    return answers


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_full_disk_leaves_what_a_refused_message_was_to_replace(limits: dict[str, object]) -> None:
    js, disk = started(**limits)
    disk.full = True

    error = js.refused("a.x", b"3")

    assert error[1] == 10077
    assert js.payloads("A") == [b"1", b"2"]
    assert js.restart().payloads("A") == [b"1", b"2"]


@pytest.mark.parametrize("rollup", ROLLUPS, ids=str)
def test_a_full_disk_leaves_what_a_refused_rollup_was_to_replace(rollup: dict[str, str]) -> None:
    js, disk = started()
    disk.full = True

    js.refused("a.x", b"3", **rollup)

    assert js.payloads("A") == [b"1", b"2"]
    assert js.restart().payloads("A") == [b"1", b"2"]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_what_is_replaced_goes_when_there_is_room_again(limits: dict[str, object]) -> None:
    js, disk = started(**limits)
    disk.full = True
    js.refused("a.x", b"3")
    disk.full = False
    js.advance(seconds=3)

    js.publish("a.x", b"4")

    assert js.payloads("A") == [b"2", b"4"]
    assert js.restart().payloads("A") == [b"2", b"4"]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_limit_is_kept_before_the_ack_leaves(limits: dict[str, object]) -> None:
    js, _ = started(**limits)

    answers = publish_all(js, *(("a.x", b"%d" % i) for i in range(3, 9)))

    assert [answer["seq"] for answer in answers] == [3, 4, 5, 6, 7, 8]
    assert js.payloads("A") == [b"7", b"8"]
    assert js.api("STREAM.INFO.A")["state"]["messages"] == 2


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        (b"Nats-Expected-Last-Subject-Sequence: 0", (5, None)),
        (b"Nats-Expected-Last-Subject-Sequence: 3", (0, "wrong last sequence: 0")),
        (
            b"Nats-Expected-Last-Subject-Sequence: 0\r\nNats-Expected-Last-Subject-Sequence-Subject: a.c",
            (5, None),
        ),
        (
            b"Nats-Expected-Last-Subject-Sequence: 4\r\nNats-Expected-Last-Subject-Sequence-Subject: a.*",
            (5, None),
        ),
    ],
)
def test_a_condition_does_not_see_what_a_rollup_of_the_same_turn_removes(
    condition: bytes, answer: tuple[int, str | None]
) -> None:
    # given
    js, _ = started()
    js.user.send(b"SUB in.1 9\r\n")
    js.user.take()
    rollup, condition = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n", b"NATS/1.0\r\n%b\r\n\r\n" % condition
    sizes = [len(rollup), len(rollup) + 1, len(condition), len(condition) + 1]
    # when
    js.user.send(
        b"PUB a.c in.1 1\r\n3\r\nHPUB a.b in.1 %d %d\r\n" % tuple(sizes[:2])
        + rollup
        + b"4\r\nHPUB a.c in.1 %d %d\r\n" % tuple(sizes[2:])
        + condition
        + b"5\r\n"
    )
    # then
    *_, last = (json.loads(payload) for payload in js.user.payloads())
    assert (last["seq"], last.get("error", {}).get("description")) == answer


def test_the_removal_is_written_after_the_message_that_asks_for_it() -> None:
    js, disk = started(max_msgs_per_subject=1)
    writes: list[bytes] = []
    disk.before_write = writes.append

    js.publish("a.x", b"replacement")

    assert b"replacement" in writes[0]
    assert [b"replacement" in data for data in writes] == [True, False]


def test_a_kill_between_the_message_and_the_removal_leaves_no_more_than_the_limit() -> None:
    js, disk = started(max_msgs_per_subject=2)
    js.publish("a.y", b"y")

    def full_after_the_message(data: bytes) -> None:
        disk.full = True

    disk.before_write = full_after_the_message
    assert js.publish("a.x", b"3")["seq"] == 4
    assert js.stream("A").store.failed

    again = js.restart()

    assert again.payloads("A") == [b"2", b"y", b"3"]
    assert again.restart().payloads("A") == [b"2", b"y", b"3"]


def test_a_removal_that_could_not_be_written_is_written_when_there_is_room() -> None:
    js, disk = started(max_msgs=2)

    def full_after_the_message(data: bytes) -> None:
        disk.full = True

    disk.before_write = full_after_the_message
    js.publish("a.x", b"3")
    disk.before_write = lambda data: None
    disk.full = False
    js.advance(seconds=3)

    assert js.publish("a.x", b"4")["seq"] == 4
    assert js.payloads("A") == [b"3", b"4"]
    assert js.restart().payloads("A") == [b"3", b"4"]


def test_a_message_that_an_earlier_write_of_the_turn_took_is_confirmed() -> None:
    js, disk = started()
    writes: list[bytes] = []

    def full_after_one(data: bytes) -> None:
        writes.append(data)
        disk.full = True

    disk.before_write = full_after_one
    answers = publish_all(js, *(("a.x", b"%d" % i * 100_000) for i in range(3, 8)))

    kept = [answer["seq"] for answer in answers if "error" not in answer]
    assert len(answers) == 5
    assert [2 + i for i in range(1, len(kept) + 1)] == kept
    assert len(js.payloads("A")) == 2 + len(kept)
    assert len(js.restart().payloads("A")) == 2 + len(kept)


@pytest.mark.parametrize("rollup", ["all", "sub"])
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_rollup_of_many_messages_is_done_when_it_is_confirmed(storage: str, rollup: str) -> None:
    js = JetStreamFixture()
    js.add("A", subjects=["a.>"], storage=storage, allow_rollup_hdrs=True)
    subject = "a.%d" if rollup == "all" else "a.0"
    js.user.send(
        b"".join(b"PUB %b 1\r\nx\r\n" % (subject.replace("%d", str(n))).encode() for n in range(20_000))
    )
    js.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": {"name": "c", "ack_policy": "explicit"}})

    ack = js.publish("a.0", b"new", Nats_Rollup=rollup)

    assert ack["seq"] == 20_001
    assert js.payloads("A") == [b"new"]
    assert js.state("A")["num_subjects"] == 1
    assert js.api("CONSUMER.INFO.A.c")["num_pending"] == 1
    if storage == "file":
        again = js.restart()
        assert again.payloads("A") == [b"new"]
        assert again.publish("a.0")["seq"] == 20_002


# -- discard new: what is to go makes room in the same turn --------------------------------------------------


def test_a_new_subject_finds_the_room_that_a_replacement_left() -> None:
    js, _ = started(max_msgs=4, max_msgs_per_subject=2, discard="new")

    answers = publish_all(js, ("a.x", b"3"), ("a.y", b"4"), ("a.y", b"5"), ("a.y", b"6"), ("a.z", b"7"))

    assert [answer.get("seq", 0) for answer in answers] == [3, 4, 5, 6, 0]
    assert js.payloads("A") == [b"2", b"3", b"5", b"6"]


def test_a_replacement_is_measured_by_what_it_really_replaces() -> None:
    js, _ = started(max_bytes=200, max_msgs_per_subject=1, discard="new")
    js.api("STREAM.PURGE.A")
    js.publish("a.y", bytes(27))
    js.publish("a.x", bytes(97))  # exactly fits: each message counts 33 additional bytes

    answers = publish_all(js, ("a.x", b"x"), ("a.x", bytes(87)), ("a.x", bytes(70)))

    assert [answer.get("seq", 0) for answer in answers] == [5, 0, 6]
    assert js.payloads("A") == [bytes(27), bytes(70)]


def test_a_rollup_makes_room_for_the_next_message() -> None:
    js, _ = started(max_msgs=3, discard="new")

    answers = publish_all(js, ("a.x", b"3"), headers=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    more = publish_all(js, ("a.y", b"4"), ("a.y", b"5"), ("a.y", b"6"))

    assert [answer.get("seq", 0) for answer in answers + more] == [3, 4, 5, 0]
    assert js.payloads("A") == [b"3", b"4", b"5"]


def test_what_is_kept_of_a_failed_turn_is_synced() -> None:
    # given: the first message fills the buffer, so that it is written before the second one is refused
    js, disk = started()
    stream = js.stream("A")
    assert js.node.turn_state.take("unsynced") == [stream]
    stream.finish_sync(stream.begin_sync()())  # type: ignore[misc]

    def fill(data: bytes) -> None:
        disk.full = True

    disk.before_write = fill
    # when
    answers = publish_all(js, ("a.y", bytes(200_000)), ("a.z", bytes(200_000)))
    # then
    assert [answer.get("seq") for answer in answers] == [3, 0]
    assert js.node.turn_state.take("unsynced") == [stream]


def test_a_consumer_counts_what_is_stored_while_the_disk_is_full() -> None:
    """The first messages of the turn are written and replace others before the disk refuses the last ones."""
    js, disk = started(max_msgs=2)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert "error" not in js.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": config})
    assert js.api("CONSUMER.INFO.A.c")["num_pending"] == 2

    def fill(data: bytes) -> None:
        disk.full = True  # after this write

    disk.before_write = fill
    answers = publish_all(js, *[("a.x", b"x" * 100_000)] * 5)

    assert [("error" in answer) for answer in answers] == [False, False, True, True, True]
    state = js.api("STREAM.INFO.A")["state"]
    assert (state["messages"], state["first_seq"]) == (2, 3)
    assert js.api("CONSUMER.INFO.A.c")["num_pending"] == 2


def test_a_consumer_counts_what_a_purge_has_left_that_the_disk_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(purging, "AT_ONCE", 4)
    monkeypatch.setattr(purging, "STEP", 2)
    js, disk = started()
    for number in range(3, 11):
        js.publish("a.x", b"%d" % number)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert "error" not in js.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": config})
    assert js.api("CONSUMER.INFO.A.c")["num_pending"] == 10
    writes: list[bytes] = []

    def fill(data: bytes) -> None:
        writes.append(data)
        disk.full = len(writes) == 3

    disk.before_write = fill
    assert js.api("STREAM.PURGE.A", {"keep": 1})["error"]["err_code"] == 10110

    messages = js.api("STREAM.INFO.A")["state"]["messages"]
    assert 1 < messages < 10
    assert js.api("CONSUMER.INFO.A.c")["num_pending"] == messages


NARROW = {
    "stream_name": "A",
    "config": {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "a.y"},
}


@pytest.mark.parametrize(("rollup", "left"), [("all", []), ("sub", [b"3"])])
def test_a_rollup_removes_older_messages_although_no_consumer_needs_it(
    rollup: str, left: list[bytes]
) -> None:
    js, _ = started()
    js.publish("a.y", b"3")
    js.api("CONSUMER.CREATE.A.c", NARROW)
    config = js.api("STREAM.INFO.A")["config"]
    js.api("STREAM.UPDATE.A", {**config, "retention": "interest"})

    js.publish("a.x", b"4", Nats_Rollup=rollup)

    assert js.payloads("A") == left
    assert js.restart().payloads("A") == left


@pytest.mark.parametrize("rollup", [b"all", b"sub"])
def test_a_refused_rollup_that_no_consumer_needs_removes_nothing(rollup: bytes) -> None:
    js, disk = started()
    js.api("CONSUMER.CREATE.A.c", NARROW)
    config = js.api("STREAM.INFO.A")["config"]
    js.api("STREAM.UPDATE.A", {**config, "retention": "interest"})
    disk.full = True

    headers = b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % rollup
    answers = publish_all(js, ("a.y", b"3"), ("a.x", b"4"), headers=headers)
    disk.full = False
    js.advance(seconds=3)
    js.publish("a.y", b"5")

    assert ["error" in answer for answer in answers] == [True, True]
    assert js.payloads("A") == [b"1", b"2", b"5"]
