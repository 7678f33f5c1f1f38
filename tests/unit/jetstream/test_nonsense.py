"""Files with valid checksums and invalid contents: a start continues with everything else."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash
from tests.support.consumer_lists import begin_state
from tests.unit.jetstream.consumer.test_consumer_recovery import Restarting
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.store.format.meta import CHECKSUM, HEADER, KIND_STATE, KIND_STREAM, decode, encode, envelope_size

STREAM_META = "$G/streams/S/meta"
CONSUMER_LOG = "$G/streams/S/consumers/c.2/log.1"
HUGE = b"\xff" * 9 + b"\x01"  # 2**64 - 1
MAP_OF_A_LIST = b"\x81\x90\x01"  # a list cannot be a key


@pytest.fixture
def js(tmp_path: Path) -> Restarting:
    """A stopped server with two streams, one of which has a consumer."""
    js = Restarting(tmp_path)
    js.fill(3)
    js.consumer()
    begin_state(js.stream("S").consumers["c"])
    js.add("T", subjects=["t.>"], storage="file", sources=[{"name": "S"}])
    js.turn()
    js.node.stop()
    return js


def put_meta(js: Restarting, change: dict[str, Any]) -> None:
    path = js.store / STREAM_META
    generation, values = decode(path.with_suffix(".a").read_bytes(), KIND_STREAM, "")
    config = {**values["config"], **change.pop("config", {})}
    data = encode(KIND_STREAM, generation + 1, {**values, "config": config, **change})
    for suffix in (".a", ".b"):
        path.with_suffix(suffix).write_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"created_ns": -1},
        {"created_ns": float("inf")},
        {"config": {"name": 5}},
        {"config": {"subjects": [5]}},
        {"config": {"storage": []}},
        {"config": {"max_age": 2**64 - 1}},
        {"config": {"max_msgs": float("nan")}},
    ],
)
def test_a_stream_whose_metadata_makes_no_sense_stays_where_it_is(
    js: Restarting, change: dict[str, Any]
) -> None:
    put_meta(js, change)
    again = JetStreamFixture(js.options)
    assert list(again.engine.streams) == ["T"]
    assert (js.store / STREAM_META).with_suffix(".a").exists()
    again.node.stop()


SOURCE = {
    "name": "T",
    "opt_start_seq": 0,
    "opt_start_time_ns": None,
    "filter_subject": "",
    "subject_transforms": [],
    "external": None,
}
NONSENSE_OF_A_SOURCE: list[dict[str, Any]] = [
    {"name": 5},
    {"name": "a.b"},
    {"name": None},
    {"opt_start_seq": "x"},
    {"opt_start_seq": -1},
    {"opt_start_time_ns": "yesterday"},
    {"filter_subject": 5},
    {"filter_subject": "a..b"},
    {"subject_transforms": 5},
    {"subject_transforms": [{"src": 5, "dest": "x"}]},
    {"subject_transforms": [{"src": "a..b", "dest": "x"}]},
    {"subject_transforms": [{"src": "a.*", "dest": "{{wildcard(9)}}"}]},
    {"subject_transforms": [{"source": "a"}]},
    {"external": "x"},
    {"external": {"api": 5, "deliver": []}},
    {"consumer": 5},
    {"nobody": "knows"},
]


@pytest.mark.parametrize("change", NONSENSE_OF_A_SOURCE, ids=str)
@pytest.mark.parametrize("field", ["mirror", "sources"])
def test_a_stream_whose_origins_make_no_sense_stays_where_it_is(
    js: Restarting, field: str, change: dict[str, Any]
) -> None:
    # given
    source = SOURCE | change
    put_meta(js, {"config": {field: source if field == "mirror" else [SOURCE, source], "subjects": []}})
    # when
    again = JetStreamFixture(js.options)
    # then
    assert list(again.engine.streams) == ["T"]
    assert again.engine.inflows.keys() == {"T"}
    assert again.error("STREAM.INFO.S")[1] == 10059
    told = [text for level, text in again.log.lines if level == "ERR"]
    assert len(told) == 1
    assert str(js.store / "$G/streams/S") in told[0]
    assert (js.store / STREAM_META).with_suffix(".a").exists()
    again.node.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"mirror": 5},
        {"mirror": [SOURCE]},
        {"mirror": SOURCE | {"name": "S"}},
        {"sources": 5},
        {"sources": SOURCE},
        {"sources": [[SOURCE]]},
        {"sources": [SOURCE | {"name": "S"}]},
        {"sources": [SOURCE | {"external": {"api": "", "deliver": "a..b"}, "name": ""}]},
        {"subject_transform": {"src": 5, "dest": 5}},
        {"subject_transform": {"src": "a.*", "dest": "{{wildcard(9)}}"}},
        {"republish": {"src": 5, "dest": 5}},
        {"consumer_limits": {"max_ack_pending": "x"}},
        {"placement": {"tags": 5}},
        {"metadata": 5},
        {"description": 5},
        {"allow_direct": "x"},
    ],
    ids=str,
)
def test_a_stream_whose_configuration_is_none_stays_where_it_is(
    js: Restarting, change: dict[str, Any]
) -> None:
    put_meta(js, {"config": change})
    again = JetStreamFixture(js.options)
    assert list(again.engine.streams) == ["T"]
    assert [level for level, _ in again.log.lines].count("ERR") == 1
    again.node.stop()


def test_two_streams_that_copy_from_each_other_are_not_both_served(js: Restarting) -> None:
    put_meta(js, {"config": {"sources": [SOURCE]}})
    again = JetStreamFixture(js.options)
    assert list(again.engine.streams) == ["S"]
    again.turn()
    assert again.stream("S").store.msgs == 3
    again.node.stop()


def test_a_map_that_is_none_is_damage(js: Restarting) -> None:
    header = HEADER.pack(b"PYJSMETA", 1, KIND_STREAM, 0, 0, 1, 0, len(MAP_OF_A_LIST), 0, 9) + MAP_OF_A_LIST
    data = header + CHECKSUM.pack(xxhash.xxh64_intdigest(header))
    for suffix in (".a", ".b"):
        (js.store / STREAM_META).with_suffix(suffix).write_bytes(data)
    again = Restarting(js.store, js.clock)
    assert set(again.engine.streams) == {"S", "T"}


@pytest.mark.parametrize(
    "delta",
    [
        b"\x01\x01\x01" + HUGE + b"\x05",  # as many deliveries as there are numbers
        b"\x02\x01" + HUGE,
        b"\x03" + b"\xff" * 30 + b"\x01\x01",  # not a u64
        b"\x05\x01" + HUGE,  # a time that does not fit an i64
    ],
)
def test_a_consumer_whose_log_makes_no_sense_begins_again(js: Restarting, delta: bytes) -> None:
    path = js.store / CONSUMER_LOG
    envelope = path.read_bytes()[: envelope_size(path.read_bytes())]
    size = struct.pack("<I", len(delta))
    checksum = xxhash.xxh64_intdigest(size + delta, CHECKSUM.unpack(envelope[-8:])[0])
    path.write_bytes(envelope + struct.pack("<IIQ", len(delta), 0, checksum) + delta)
    again = Restarting(js.store, js.clock)
    assert [m.seq for m in again.pull(batch=9, no_wait=True)] == [1, 2, 3]


@pytest.mark.parametrize("change", [{"next_seq": -1}, {"floor": [1e300, 0]}, {"spent": {"a": 1}}])
def test_a_consumer_whose_snapshot_makes_no_sense_begins_again(
    js: Restarting, change: dict[str, Any]
) -> None:
    path = js.store / CONSUMER_LOG
    data = path.read_bytes()
    state = json.loads(decode(data[: envelope_size(data)], KIND_STATE, "")[1]["state"])
    envelope = encode(KIND_STATE, 1, {"state": json.dumps({**state, **change}).encode()})
    path.write_bytes(envelope)
    path.with_name("snap.1").write_bytes(envelope)
    again = Restarting(js.store, js.clock)
    assert [m.seq for m in again.pull(batch=9, no_wait=True)] == [1, 2, 3]


@pytest.mark.parametrize(
    "entry", [{"at": None, "sources": {}}, {"at": 3, "sources": {"S > >": [-1, "x"]}}, [1]]
)
def test_positions_that_make_no_sense_are_read_from_messages(js: Restarting, entry: object) -> None:
    envelope = encode(KIND_STATE, 1, {"state": json.dumps(entry).encode()})
    for path in (js.store / "$G/streams/T/sources").iterdir():
        path.write_bytes(envelope)
    again = Restarting(js.store, js.clock)
    again.fill(1)
    again.advance(seconds=2)
    assert again.stream("T").store.msgs == 4
