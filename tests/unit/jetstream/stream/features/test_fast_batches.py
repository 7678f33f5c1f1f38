"""Fast batches: reply subjects, flow of acknowledgements, idle time, failed writes.

The order and the texts of the replies are tested in tests/conformance/scenarios/fast.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import orjson
import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.jetstream.stream.features.fast_batches import parse

S = 1_000_000_000


@pytest.fixture
def js() -> Iterator[JetStreamFixture]:
    fixture = JetStreamFixture()
    fixture.add("S", subjects=["s"], allow_batched=True)
    fixture.user.send(b"SUB in.> 9\r\nPING\r\n")
    yield fixture
    fixture.node.stop()


def put(js: JetStreamFixture, batch: str, seq: int, op: int = 1, payload: bytes = b"x") -> None:
    js.user.send(b"PUB s in.%b.%d.%d.$FI %d\r\n%b\r\n" % (batch.encode(), seq, op, len(payload), payload))


def told(js: JetStreamFixture) -> list[object]:
    """Return the JSON replies received since the last call."""
    return [orjson.loads(payload) for payload in js.user.payloads() if payload.startswith(b"{")]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"a.b.id.10.ok.1.0.$FI", (b"id", 10, True, 1, 0)),
        (b"in.id.0.fail.2.1.$FI", (b"id", 10, False, 2, 1)),
        (b"in.id.x.fail.9.2.$FI", (b"id", 10, False, 9, 2)),
        (b"in.id.99999999999999999999.fail.9.3.$FI", (b"id", 10, False, 9, 3)),
        (b"in.id.70000.ok.1.4.$FI", (b"id", 65535, True, 1, 4)),
        (b"in..1.ok.1.2.$FI", (b"", 1, True, 1, 2)),
        (b".$FI", None),
        (b"in.id.1.ok.1.5.$FI", None),
        (b"in.id.1.ok.1..$FI", None),
        (b"in.id.1.ok.0.1.$FI", None),
        (b"in.id.1.ok.2.0.$FI", None),
        (b"in.id.1.ok.1.1.$FI", None),
        (b"in.id.1.ok.1.3.$FI", None),
        (b"in.id.1.ok.18446744073709551617.1.$FI", None),
        (b"in.id.1.OK.1.0.$FI", None),
    ],
)
def test_a_reply_subject_is_read_from_its_end(reply: bytes, expected: object) -> None:
    assert parse(reply) == expected


def test_every_nth_message_is_acknowledged(js: JetStreamFixture) -> None:
    put(js, "b.3.fail", 1, 0)
    for seq in range(2, 8):
        put(js, "b.3.fail", seq)
    put(js, "b.3.fail", 8, 2)
    assert told(js) == [
        {"type": "ack", "seq": 0, "msgs": 3},
        {"type": "ack", "seq": 3, "msgs": 3},
        {"type": "ack", "seq": 6, "msgs": 3},
        {"stream": "S", "seq": 8, "batch": "b", "count": 8},
    ]
    assert js.engine.shared.batches.fast_count == 0


def test_a_second_batch_starts_slowly_and_speeds_up(js: JetStreamFixture) -> None:
    put(js, "one.1000.ok", 1, 0)
    put(js, "two.1000.ok", 1, 0)
    for seq in range(2, 8):
        put(js, "two.1000.ok", seq)
    assert told(js) == [
        {"type": "ack", "seq": 0, "msgs": 500},
        {"type": "ack", "seq": 0, "msgs": 1},
        {"type": "ack", "seq": 1, "msgs": 2},
        {"type": "ack", "seq": 3, "msgs": 4},
        {"type": "ack", "seq": 7, "msgs": 8},
    ]


def test_messages_of_two_batches_may_alternate(js: JetStreamFixture) -> None:
    for seq in range(1, 5):
        for batch in ("x.9.fail", "y.9.fail"):
            put(js, batch, seq, 0 if seq == 1 else 2 if seq == 4 else 1)
    assert [each for each in told(js) if "batch" in each] == [  # type: ignore[operator]
        {"stream": "S", "seq": 7, "batch": "x", "count": 4},
        {"stream": "S", "seq": 8, "batch": "y", "count": 4},
    ]


def test_an_idle_batch_ends(js: JetStreamFixture) -> None:
    put(js, "b.3.fail", 1, 0)
    js.at(js.clock.now_ns() + 9 * S)
    put(js, "b.3.fail", 2)
    js.at(js.clock.now_ns() + 9 * S)
    put(js, "b.3.fail", 2, 4)
    js.at(js.clock.now_ns() + 9 * S)
    assert js.engine.shared.batches.fast_count == 1
    js.at(js.clock.now_ns() + 11 * S)
    assert js.engine.shared.batches.fast_count == 0
    told(js)
    put(js, "b.3.fail", 3)
    assert [each["error"]["err_code"] for each in told(js)] == [10208]  # type: ignore[index]


def test_a_deleted_stream_forgets_its_fast_batches(js: JetStreamFixture) -> None:
    put(js, "b.3.fail", 1, 0)
    js.api("STREAM.DELETE.S")
    assert js.engine.shared.batches.fast_count == 0
    js.add("S", subjects=["s"], allow_batched=True)
    told(js)
    put(js, "b.3.fail", 2)
    assert [each["error"]["err_code"] for each in told(js)] == [10208]  # type: ignore[index]


class FullDisk(OsDisk):
    """A disk without space while `full` is set."""

    full = False

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, offset)


def test_a_batch_without_gaps_ends_when_a_message_is_not_written() -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    js.add("S", subjects=["s"], allow_batched=True, storage="file")
    js.user.send(b"SUB in.> 9\r\n")
    put(js, "b.1.fail", 1, 0)
    put(js, "c.1.ok", 1, 0)
    told(js)
    disk.full = True
    put(js, "b.1.fail", 2)
    put(js, "c.1.ok", 2)
    disk.full = False
    errors = [each["error"]["err_code"] for each in told(js)]  # type: ignore[index]
    assert set(errors) == {10077}
    assert js.stream("S").store.msgs == 2
    put(js, "b.1.fail", 3)
    assert [each["error"]["err_code"] for each in told(js)] == [10208]  # type: ignore[index]
    js.node.stop()
