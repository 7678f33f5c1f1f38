"""Large atomic batches: committed in bounded steps, all or nothing, and everything else waits for them."""

from __future__ import annotations

import errno
import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.node import options_with_store
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.jetstream.stream.stream import Stream
from pyjs.testing import RawClient, VirtualNode

COUNT, SIZE = 96, 65_536  # messages of the large batch, and their bytes: 6 MB
KIB = 1024
TURN_MS = 4.0  # virtual time per turn: a turn has 1 ms for steps, and the last one may end late


class SlowDisk(OsDisk):
    """Has room for `room` bytes, and advances the virtual clock by a microsecond for each KiB written."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.room = 1 << 40

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if len(data) > self.room:
            super().write_at(fd, data[: self.room], offset)
            raise OSError(errno.ENOSPC, "no space")
        self.room -= len(data)
        self.clock.advance(len(data) // KIB * 1000)
        super().write_at(fd, data, offset)


@pytest.fixture(params=["file", "memory"])
def js(request: pytest.FixtureRequest) -> Iterator[JetStreamFixture]:
    fixture = made(request.param)
    yield fixture
    fixture.node.stop()


@pytest.fixture
def files() -> Iterator[JetStreamFixture]:
    fixture = made("file")
    yield fixture
    fixture.node.stop()


def made(storage: str) -> JetStreamFixture:
    fixture = JetStreamFixture()
    fixture.node.disk = SlowDisk(fixture.clock)
    fixture.add("S", subjects=["s.>"], allow_atomic=True, allow_rollup_hdrs=True, storage=storage)
    fixture.add("T", subjects=["t"], storage=storage)
    fixture.user.send(b"SUB in.> 9\r\n")
    return fixture


def part(seq: int, count: int, name: bytes = b"b", more: bytes = b"", size: int = SIZE) -> bytes:
    """Return message `seq` of a batch; the last one commits the batch and has a reply subject."""
    head = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b" % (name, seq, more)
    head += b"Nats-Batch-Commit: 1\r\n\r\n" if seq == count else b"\r\n"
    body = (b"%b %d " % (name, seq)).ljust(size, b".")
    reply = b"in.%b " % name if seq == count else b""
    return b"HPUB s.%d %b%d %d\r\n%b%b\r\n" % (seq % 7, reply, len(head), len(head) + size, head, body)


def small(name: bytes, more: bytes = b"") -> bytes:
    """Return a batch of three short messages, the first with the header lines `more`."""
    return b"".join(part(seq, 3, name, more if seq == 1 else b"", size=20) for seq in (1, 2, 3))


def with_header(subject: bytes, line: bytes, reply: bytes) -> bytes:
    """Return the publish of one byte with one header."""
    head = b"NATS/1.0\r\n%b\r\n\r\n" % line
    return b"HPUB %b %b %d %d\r\n%bx\r\n" % (subject, reply, len(head), len(head) + 1, head)


def stage(js: JetStreamFixture, count: int = COUNT, name: bytes = b"b", more: bytes = b"") -> bytes:
    """Send all messages of a batch except the last one; return that."""
    for seq in range(1, count):
        js.user.send(part(seq, count, name, more))
    return part(count, count, name, more)


def one_turn(js: JetStreamFixture) -> float:
    """Run a turn; return how many milliseconds of virtual time it took."""
    before = js.clock.now_ns()
    js.node.turn(before)
    return (js.clock.now_ns() - before) / 1e6


def answers(client: RawClient) -> list[dict[str, object]]:
    return [json.loads(frame.payload) for frame in client.frames() if frame.subject.startswith(b"in.")]


def test_no_turn_writes_much_of_a_large_batch_and_others_are_served(files: JetStreamFixture) -> None:
    # given
    other = files.client()
    last = stage(files)
    # when
    files.user.session.receive_data(last)
    times: list[float] = []
    got: list[dict[str, object]] = []
    while not got:
        other.session.receive_data(b"PING\r\n")
        times.append(one_turn(files))
        # then
        assert other.take() == b"PONG\r\n"
        got = answers(files.user)
    assert got == [{"stream": "S", "seq": COUNT, "batch": "b", "count": COUNT}]
    assert max(times) < TURN_MS, times
    assert len(times) >= 4


def test_publishes_wait_behind_a_large_batch_and_those_of_other_streams_do_not(js: JetStreamFixture) -> None:
    # given
    last = stage(js)
    # when
    js.user.session.receive_data(last + b"PUB s.x in.x 1\r\nx\r\nPUB t in.t 1\r\nt\r\n")
    one_turn(js)
    # then
    assert answers(js.user) == [{"stream": "T", "seq": 1}]
    assert js.stream("S").store.msgs == 0
    js.turn()
    assert [each["seq"] for each in answers(js.user)] == [COUNT, COUNT + 1]


def test_a_second_large_batch_waits_with_what_came_before_it(js: JetStreamFixture) -> None:
    last, second = stage(js), stage(js, name=b"c")
    js.user.send(last + b"PUB s.x in.x 1\r\nx\r\n" + second + b"PUB s.y in.y 1\r\ny\r\n")
    assert [each["seq"] for each in answers(js.user)] == [COUNT, COUNT + 1, 2 * COUNT + 1, 2 * COUNT + 2]
    assert js.engine.shared.batches.bytes == 0


def test_many_publishes_behind_a_large_batch_do_its_work(js: JetStreamFixture) -> None:
    # given
    last = stage(js)
    js.user.session.receive_data(last)
    # when
    for number in range(COUNT):
        js.user.session.receive_data(b"PUB s.x in.%d 65536\r\n%b\r\n" % (number, bytes(SIZE)))
    js.turn()
    # then
    assert [each["seq"] for each in answers(js.user)] == list(range(COUNT, 2 * COUNT + 1))


@pytest.mark.parametrize(
    ("endpoint", "body", "left"),
    [
        ("STREAM.PURGE.S", {}, 0),
        ("STREAM.PURGE.S", {"filter": "s.1"}, COUNT - 14),
        ("STREAM.MSG.DELETE.S", {"seq": 1}, COUNT - 1),
        ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 10, "allow_atomic": False}, 10),
    ],
)
def test_a_change_comes_after_a_large_batch_that_was_before_it(
    js: JetStreamFixture, endpoint: str, body: dict[str, object], left: int
) -> None:
    # given
    storage = js.stream("S").config.storage
    last = stage(js)
    js.user.session.receive_data(last)
    one_turn(js)
    # when
    answer = js.api(endpoint, {**body, "storage": storage} if "UPDATE" in endpoint else body)
    # then
    assert "error" not in answer
    assert js.state("S")["messages"] == left
    assert js.publish("s.x")["seq"] == COUNT + 1


def test_a_stream_is_deleted_in_the_middle_of_a_batch(js: JetStreamFixture) -> None:
    js.user.session.receive_data(stage(js))
    one_turn(js)
    assert js.api("STREAM.DELETE.S")["success"]
    assert js.engine.shared.batches.bytes == 0


def test_a_batch_that_is_refused_in_the_middle_leaves_nothing(js: JetStreamFixture) -> None:
    # given
    js.publish("s.x", Nats_Msg_Id="known")
    stage(js)
    wrong = part(COUNT, COUNT, more=b"Nats-Msg-Id: known\r\n")
    # when
    js.user.send(wrong + b"PUB s.x in.x 1\r\nx\r\n")
    # then
    refused, taken = answers(js.user)
    assert refused["error"] == {
        "code": 400,
        "err_code": 10201,
        "description": "atomic publish batch contains duplicate message id",
    }
    assert taken["seq"] == 2


def test_a_kill_in_the_middle_of_a_large_batch_leaves_nothing_of_it(
    files: JetStreamFixture, tmp_path: Path
) -> None:
    # given
    files.publish("s.x")
    files.user.session.receive_data(stage(files))
    found = []
    for turn in range(100):
        one_turn(files)
        # when
        copy = tmp_path / f"{turn}"
        shutil.copytree(files.directory.name, copy)
        with VirtualNode(options_with_store(copy)) as node:
            info = json.loads(node.client().request(b"$JS.API.STREAM.INFO.S").payload)
        # then
        found.append(info["state"]["messages"])
        assert "lost" not in info["state"]
        if answers(files.user):
            break
    assert set(found) == {1, COUNT + 1}
    assert found[-1] == COUNT + 1


@pytest.mark.parametrize("room", [100 * KIB, 3000 * KIB])
def test_a_disk_that_is_full_in_the_middle_of_a_large_batch_takes_none_of_it(
    files: JetStreamFixture, room: int
) -> None:
    # given
    files.publish("s.x")
    disk = files.node.disk
    assert isinstance(disk, SlowDisk)
    last = stage(files)
    disk.room = room
    # when
    files.user.send(last + b"PUB s.x in.x 1\r\nx\r\n")
    # then
    assert ["error" in each for each in answers(files.user)] == [True, True]
    disk.room = 1 << 40
    files.at(files.clock.now_ns() + 2_000_000_000)
    assert files.publish("s.x")["seq"] > 1
    again = files.restart()
    try:
        assert again.state("S")["messages"] == 2
        assert "lost" not in again.state("S")
    finally:
        again.node.stop()


def test_a_large_batch_is_stored_as_a_small_one_is(files: JetStreamFixture) -> None:
    files.user.send(stage(files))
    files.engine.shared.batches.at_once_max = 1 << 30
    files.user.send(stage(files, name=b"c"))
    store = files.stream("S").store
    first = [store.get(seq) for seq in range(1, COUNT + 1)]
    second = [store.get(seq) for seq in range(COUNT + 1, 2 * COUNT + 1)]
    assert [(m.subject, len(m.payload)) for m in first if m] == [
        (m.subject, len(m.payload)) for m in second if m
    ]
    again = files.restart()
    try:
        assert again.state("S")["messages"] == 2 * COUNT
    finally:
        again.node.stop()


def test_messages_of_a_large_batch_that_nobody_wants_are_not_stored() -> None:
    fixture = JetStreamFixture()
    try:
        fixture.add("S", subjects=["s.>"], allow_atomic=True, retention="interest", storage="file")
        config = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.1"}
        fixture.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        fixture.user.send(b"SUB in.> 9\r\n")
        fixture.user.send(stage(fixture))
        assert answers(fixture.user)[0]["seq"] == COUNT
        assert fixture.state("S")["messages"] == len([seq for seq in range(1, COUNT + 1) if seq % 7 == 1])
        again = fixture.restart()
        assert again.state("S")["messages"] == len([seq for seq in range(1, COUNT + 1) if seq % 7 == 1])
        again.node.stop()
    finally:
        fixture.node.stop()


def test_deliveries_to_a_source_come_after_a_large_batch_that_was_before_them() -> None:
    # given
    fixture = JetStreamFixture()
    try:
        fixture.add("O", storage="file", subjects=["o"])
        config = {"durable_name": "c", "ack_policy": "flow_control", "deliver_subject": "d"}
        fixture.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": config})
        source = {"name": "O", "consumer": {"name": "c", "deliver_subject": "d"}}
        fixture.add("S", storage="file", subjects=["s.>"], allow_atomic=True, sources=[source])
        fixture.advance(seconds=1)
        fixture.user.session.receive_data(stage(fixture))
        # when
        for _ in range(4):
            fixture.user.session.receive_data(b"PUB o 1\r\nx\r\n")
            one_turn(fixture)
        fixture.advance(seconds=1)
        # then
        stored = fixture.payloads("S")
        assert stored[COUNT:] == [b"x"] * 4
        again = fixture.restart()
        assert again.payloads("S") == stored
        again.node.stop()
    finally:
        fixture.node.stop()


@pytest.mark.parametrize("turns", [0, 1])
def test_a_traced_publish_comes_after_the_publishes_that_wait_for_a_large_batch(
    js: JetStreamFixture, turns: int
) -> None:
    # given
    js.publish("s.x", Nats_Msg_Id="1")
    js.user.session.receive_data(stage(js))
    for _ in range(turns):
        one_turn(js)
    # when
    again = with_header(b"s.x", b"Nats-Msg-Id: 1", b"in.again")
    wrong = with_header(b"s.x", b"Nats-Expected-Last-Sequence: 7", b"in.wrong")
    traced = with_header(b"s.x", b"Nats-Trace-Dest: trace", b"in.traced")
    js.user.session.receive_data(again + wrong + traced)
    js.turn()
    # then
    batch, duplicate, refused, taken = answers(js.user)
    assert batch["seq"] == COUNT + 1
    assert duplicate == {"stream": "S", "seq": 1, "duplicate": True}
    assert refused["error"] == {
        "code": 400,
        "err_code": 10071,
        "description": f"wrong last sequence: {COUNT + 1}",
    }
    assert taken == {"stream": "S", "seq": COUNT + 2}


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_large_batch_beyond_the_last_sequence_is_refused(storage: str) -> None:
    fixture = JetStreamFixture()
    try:
        fixture.add("S", subjects=["s.>"], allow_atomic=True, storage=storage, first_seq=2**64 - 50)
        fixture.user.send(b"SUB in.> 9\r\n")
        fixture.user.send(stage(fixture))
        assert [each["error"]["err_code"] for each in answers(fixture.user)] == [10077]  # type: ignore[index]
        assert fixture.publish("s.x")["seq"] == 2**64 - 50
    finally:
        fixture.node.stop()


def test_a_fault_in_the_middle_of_a_large_batch_refuses_it_and_what_waits(files: JetStreamFixture) -> None:
    # given
    files.user.session.receive_data(stage(files) + b"PUB s.x in.x 1\r\nx\r\n")
    one_turn(files)
    # when
    files.node.turn_state.faulted.append((files.stream("S"), RuntimeError("test")))
    files.advance(seconds=1)
    # then
    assert ["error" in each for each in answers(files.user)] == [True, True]
    assert files.state("S")["messages"] == 0
    assert files.engine.shared.batches.bytes == 0


@pytest.mark.parametrize("expected", [b"0", b"7"])
def test_a_deleted_stream_is_freed_after_a_batch_with_conditions(expected: bytes) -> None:
    # given
    js = made("memory")
    js.user.send(small(b"n", b"Nats-Expected-Last-Sequence: %b\r\n" % expected))
    assert answers(js.user)
    gc.collect()
    gc.disable()
    try:
        # when
        js.api("STREAM.DELETE.S")
        js.advance(seconds=5)
        # then
        streams = [each for each in gc.get_objects() if isinstance(each, Stream)]
        assert [each.name for each in streams if each.account is js.engine.account] == ["T"]
    finally:
        gc.enable()
        js.node.stop()


def test_batches_of_one_read_share_a_segment(files: JetStreamFixture) -> None:
    files.user.session.receive_data(b"PUB s.x 1\r\nx\r\n" + small(b"a") + small(b"b"))
    files.turn()
    assert files.state("S")["messages"] == 7
    assert len(files.stream("S").store.segment_paths()) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("traced", [False, True])
def test_what_arrives_with_a_large_batch_is_written_by_the_turn(
    files: JetStreamFixture, traced: bool
) -> None:
    # given
    disk = files.node.disk
    assert isinstance(disk, SlowDisk)
    read = b"PUB s.x 1\r\nx\r\n" + stage(files) + b"PUB s.x 65536\r\n%b\r\n" % bytes(SIZE) * 64
    if traced:
        read += with_header(b"s.x", b"Nats-Trace-Dest: trace", b"in.traced")
    before = disk.room
    # when
    sent_early = []
    for at in range(0, len(read), SIZE):
        files.user.session.receive_data(read[at : at + SIZE])
        sent_early += answers(files.user)
    # then
    assert not sent_early
    assert disk.room == before or traced
    files.turn()
    assert files.state("S")["messages"] == 1 + COUNT + 64 + traced


def test_a_large_batch_is_refused_if_the_account_is_full_when_its_bytes_are_there(
    files: JetStreamFixture,
) -> None:
    # given
    files.engine.usage["file"].max = (COUNT + 10) * SIZE
    files.user.session.receive_data(stage(files))
    one_turn(files)
    one_turn(files)
    # when
    files.user.session.receive_data(b"PUB t 65536\r\n%b\r\n" % bytes(SIZE) * 10)
    files.turn()
    # then
    assert [each["error"]["err_code"] for each in answers(files.user)] == [10002]  # type: ignore[index]
    assert files.state("S")["messages"] == 0
    assert files.publish("s.x")["seq"] == 1
