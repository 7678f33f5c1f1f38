"""Atomic batches: staging, idle time, and a file that ends within a batch after a kill.

The texts and the order of the checks are tested in tests/conformance/scenarios/atomic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.stream.features.batches import scan
from pyjs.jetstream.stream.features.headers import value_of, value_or_none
from pyjs.store.segment.scan import scan_segment

S = 1_000_000_000


LINES = st.lists(
    st.tuples(
        st.sampled_from(
            ["Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Nats-Required-Api-Level", "X"]
        ),
        st.text(" 0123456789eobx:-", max_size=22),
    ),
    max_size=6,
)


@given(LINES)
def test_the_headers_of_a_batch_are_those_that_a_plain_reader_finds(lines: list[tuple[str, str]]) -> None:
    headers = "".join(["NATS/1.0\r\n", *(f"{name}: {value}\r\n" for name, value in lines), "\r\n"]).encode()
    digits = value_of(headers, b"Nats-Batch-Sequence")
    seq = int(digits) if digits.isdigit() and len(digits) <= 20 else -1
    assert scan(headers) == (
        value_of(headers, b"Nats-Batch-Id"),
        seq if seq < 10**17 else int(digits.lstrip(b"0")[:18]),
        value_or_none(headers, b"Nats-Batch-Commit"),
        value_or_none(headers, b"Nats-Required-Api-Level") is not None,
    )


@pytest.fixture
def js() -> Iterator[JetStreamFixture]:
    fixture = JetStreamFixture()
    yield fixture
    fixture.node.stop()


def stage(js: JetStreamFixture, seq: int, commit: bytes = b"", payload: bytes = b"x") -> bytes:
    headers = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n" % seq
    headers += b"Nats-Batch-Commit: %b\r\n" % commit if commit else b""
    return js.ask(f"s.{seq}", payload, headers + b"\r\n").payload


def test_nothing_is_stored_before_the_commit(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True)
    assert stage(js, 1) == b""
    assert js.stream("S").store.msgs == 0
    assert stage(js, 2, b"1") == b'{"stream":"S","seq":2,"batch":"b","count":2}'
    assert js.stream("S").store.msgs == 2


def test_an_idle_batch_ends(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True)
    stage(js, 1)
    js.at(js.clock.now_ns() + 9 * S)
    assert stage(js, 2) == b""
    js.at(js.clock.now_ns() + 9 * S)
    assert stage(js, 3) == b""
    js.at(js.clock.now_ns() + 11 * S)
    assert b'"err_code":10176' in stage(js, 4, b"1")
    assert js.engine.shared.batches.count == 0


def test_a_deleted_stream_forgets_its_batches(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True)
    stage(js, 1)
    assert js.engine.shared.batches.bytes > 0
    js.api("STREAM.DELETE.S")
    assert (js.engine.shared.batches.count, js.engine.shared.batches.bytes) == (0, 0)


def test_the_staged_bytes_of_a_server_are_bounded(
    js: JetStreamFixture,
) -> None:
    js.engine.shared.batches.bytes_max = 1000
    js.add("S", subjects=["s.*"], allow_atomic=True)
    stage(js, 1, payload=b"x" * 500)
    assert b'"err_code":10199' in stage(js, 2, payload=b"x" * 500)
    assert js.engine.shared.batches.bytes == 0


def test_a_batch_over_the_room_of_its_account_is_refused(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True)
    stage(js, 1, payload=b"x" * 500)
    js.engine.usage["memory"].max = 600
    assert b'"err_code":10002' in stage(js, 2, b"1")
    assert js.stream("S").store.msgs == 0


def test_a_file_that_is_cut_anywhere_has_all_of_a_batch_or_none(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True, storage="file")
    js.publish("s.0")
    stage(js, 1)
    stage(js, 2, payload=b"\0" * 40)
    stage(js, 3, b"1")
    js.publish("s.4")
    js.turn()
    path = next(Path(js.directory.name).rglob("*.seg"))
    data = path.read_bytes().rstrip(b"\0")
    counts = []
    for size in range(64, len(data) + 1):
        for tail in (b"", bytes(8192)):
            counts.append(scan_segment(data[:size] + tail).messages)
    assert set(counts) == {0, 1, 4, 5}


@pytest.mark.parametrize("size", [3, 300_000])
def test_a_batch_is_there_after_a_restart(js: JetStreamFixture, size: int) -> None:
    js.add("S", subjects=["s.*"], allow_atomic=True, storage="file")
    for seq in range(1, 12):
        stage(js, seq, payload=b"x" * size)
    stage(js, 12, b"eob")
    again = js.restart()
    try:
        assert again.stream("S").store.msgs == 11
    finally:
        again.node.stop()
