"""Streams, above all those with work queue or interest retention, read by direct get: the same from both servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.support.proxy import CuttingProxy
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa

from pyjs_spark.decode.schema import arrow_schema
from pyjs_spark.errors import DataLoss, ProtocolError, StreamMissing
from pyjs_spark.nats.client import Client, Reply, connected
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import direct
from pyjs_spark.read import modes as reading
from pyjs_spark.read.pull import ReadRange, Report, read_range
from pyjs_spark.times import parse_rfc3339

HEADERS = b"NATS/1.0\r\nA: 1\r\nNats-Stream: mine\r\nA: 2\r\n\r\n"


@pytest.fixture(params=[True, False], ids=["batched", "one by one"])
def allow_direct(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    made = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",)))
    yield made
    made.close()


def seqs(batches: list[pa.RecordBatch]) -> list[int]:
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def messages_of(filler: Filler) -> object:
    state = filler.api(f"STREAM.INFO.{filler.name}")["state"]
    assert isinstance(state, dict)
    return state["messages"]


def test_a_work_queue_is_read_and_left_as_it_is(filler: Filler, client: Client, allow_direct: bool) -> None:
    created = filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(3)
    filler.fill(2, headers=HEADERS)
    what = ReadRange(filler.name, 2, 6, created=created, batch_rows=3)

    batches = list(read_range(client, what))

    assert [batch.num_rows for batch in batches] == [3, 1]
    assert all(batch.schema.equals(arrow_schema(what.columns, "map")) for batch in batches)
    assert all(batch.validate(full=True) is None for batch in batches)
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["seq"] for row in rows] == [2, 3, 4, 5]
    assert [row["data"] for row in rows] == [b"2", b"3", b"1", b"2"]
    assert [row["subject"] for row in rows] == [f"{filler.subject.decode()}.{n}" for n in (2, 0, 1, 2)]
    assert [row["headers"] for row in rows] == [
        None, None, *[[("A", ["1", "2"]), ("Nats-Stream", ["mine"])]] * 2,
    ]  # fmt: skip
    assert messages_of(filler) == 5
    assert filler.consumers() == []


def test_an_interest_stream_is_read_and_left_as_it_is(
    filler: Filler, client: Client, allow_direct: bool
) -> None:
    filler.create(retention="interest", allow_direct=allow_direct)
    config = {"durable_name": "worker", "ack_policy": "explicit"}
    filler.api(f"CONSUMER.CREATE.{filler.name}.worker", stream_name=filler.name, config=config)
    filler.fill(10)

    assert seqs(list(read_range(client, ReadRange(filler.name, 1, 11)))) == list(range(1, 11))
    assert messages_of(filler) == 10
    assert filler.consumers() == ["worker"]


def test_headers_are_raw_as_they_were_published(filler: Filler, client: Client, allow_direct: bool) -> None:
    filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(1, headers=HEADERS)
    filler.fill(1)
    filler.fill(1, headers=b"NATS/1.0 503 Odd\r\nA: 1\r\n\r\n")

    (batch,) = read_range(client, ReadRange(filler.name, 1, 4, columns=("headers", "ts_ns"), headers="raw"))
    stored = [filler.api(f"STREAM.MSG.GET.{filler.name}", seq=seq)["message"] for seq in (1, 2)]

    assert batch.column("headers").to_pylist() == [HEADERS, None, b"NATS/1.0\r\nA: 1\r\n\r\n"]
    assert [parse_rfc3339(str(one["time"])) for one in stored if isinstance(one, dict)] == batch.column(
        "ts_ns"
    ).to_pylist()[:2]


def test_gaps_and_filters_hold(filler: Filler, client: Client, allow_direct: bool) -> None:
    filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(30)
    filler.delete(4, 5, 29, 30)
    subject = filler.subject.decode()
    what = ReadRange(filler.name, 3, 31, batch_rows=7, fetch_batch=4)

    assert seqs(list(read_range(client, what))) == [3, *range(6, 29)]
    assert seqs(list(read_range(client, replace(what, high=20)))) == [3, *range(6, 20)]
    one = replace(what, subjects=(f"{subject}.1",))
    assert seqs(list(read_range(client, one))) == list(range(7, 29, 3))
    two = replace(what, subjects=(f"{subject}.1", f"{subject}.0", "other.>"))
    assert seqs(list(read_range(client, two))) == [seq for seq in (3, *range(6, 29)) if seq % 3 != 2]
    assert list(read_range(client, replace(what, subjects=(f"{subject}.none",)))) == []
    assert list(read_range(client, replace(what, low=29))) == []
    assert list(read_range(client, replace(what, low=31))) == []


def test_messages_taken_by_workers_are_no_data_loss_but_another_stream_is(
    filler: Filler, client: Client, allow_direct: bool
) -> None:
    created = filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=4)
    what, report = ReadRange(filler.name, 1, 11, created=created), Report()

    assert seqs(list(read_range(client, what, report))) == list(range(4, 11))
    assert (report.rows, report.lost) == (7, 0)
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(10)
    with pytest.raises(DataLoss, match="another stream has its name by now"):
        list(read_range(client, what))
    assert list(read_range(client, replace(what, fail_on_data_loss=False), report)) == []
    assert report.lost == 10
    filler.api(f"STREAM.DELETE.{filler.name}")
    with pytest.raises(StreamMissing):
        list(direct.read_range(client, replace(what, created="")))


def test_a_limits_stream_that_lost_its_beginning_or_its_end_is_data_loss(
    filler: Filler, client: Client, allow_direct: bool
) -> None:
    created = filler.create(allow_direct=allow_direct)
    filler.fill(20)
    filler.delete(12, 15)
    what, report = ReadRange(filler.name, 1, 26, created=created), Report()
    assert seqs(list(direct.read_range(client, replace(what, high=21)))) == [
        seq for seq in range(1, 21) if seq not in (12, 15)
    ]
    with pytest.raises(DataLoss, match="5 messages from sequence 21 on are lost; the stream ends at 20"):
        list(direct.read_range(client, what))
    filler.api(f"STREAM.PURGE.{filler.name}", seq=11)
    with pytest.raises(DataLoss, match="10 messages from sequence 1 on are lost; the stream begins at 11"):
        list(direct.read_range(client, replace(what, high=21)))

    batches = list(direct.read_range(client, replace(what, fail_on_data_loss=False), report))

    assert seqs(batches) == [11, 13, 14, 16, 17, 18, 19, 20]
    assert (report.rows, report.lost) == (8, 15)


def test_a_limits_stream_that_is_purged_ahead_of_the_reader_is_data_loss(
    filler: Filler, client: Client, allow_direct: bool
) -> None:
    created = filler.create(allow_direct=allow_direct)
    filler.fill(20)
    reading = direct.read_range(
        client, ReadRange(filler.name, 1, 21, created=created, batch_rows=5, fetch_batch=5)
    )
    assert seqs([next(reading)]) == [1, 2, 3, 4, 5]
    filler.api(f"STREAM.PURGE.{filler.name}", seq=17)

    with pytest.raises(DataLoss, match="the stream begins at 17 by now"):
        list(reading)


def test_what_a_mirror_that_answers_does_not_have_is_read_from_its_stream(
    filler: Filler, client: Client
) -> None:
    created = filler.create(allow_direct=True)
    filler.fill(40)
    mirror = {"name": f"{filler.name}M", "storage": "memory", "allow_direct": True, "mirror_direct": True}
    filler.raw.api(
        f"STREAM.CREATE.{filler.name}M", **mirror, mirror={"name": filler.name, "opt_start_seq": 30}
    )
    answered = set()
    while len(answered) < 2:
        request = json.dumps({"last_by_subj": f"{filler.subject.decode()}.1"}).encode()
        answered.add(client.request(f"$JS.API.DIRECT.GET.{filler.name}", request).header(b"Nats-Stream"))

    try:
        for _ in range(8):
            what = ReadRange(filler.name, 1, 41, created=created, fetch_batch=15)
            assert seqs(list(direct.read_range(client, what))) == list(range(1, 41))
    finally:
        filler.raw.try_api(f"STREAM.DELETE.{filler.name}M")


def test_a_server_that_lacks_resources_is_asked_again(
    filler: Filler, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = filler.create(retention="workqueue", allow_direct=True)
    filler.fill(3)
    busy = [Reply(1, b"", b"", b"NATS/1.0 500 Insufficient Resources\r\n\r\n", b"")]
    said, ask, report = [busy, busy], client.request_many, Report()
    monkeypatch.setattr(client, "request_many", lambda *args: said.pop() if said else ask(*args))

    batches = list(read_range(client, ReadRange(filler.name, 1, 4, created=created), report))

    assert seqs(batches) == [1, 2, 3]
    assert report.failures == 2


def test_a_cut_connection_is_made_again_and_nothing_is_lost_or_repeated(
    filler: Filler, server: ServerProcess
) -> None:
    created = filler.create(retention="workqueue", allow_direct=True)
    filler.fill(2000)
    proxy, report = CuttingProxy(server.port, [90_000, 150_000, 5_000]), Report()
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))

    what = ReadRange(filler.name, 1, 2001, created=created, batch_rows=700, fetch_batch=300)
    batches = list(read_range(client, what, report))
    client.close()
    proxy.close()

    assert [batch.num_rows for batch in batches] == [700, 700, 600]
    assert seqs(batches) == list(range(1, 2001))
    assert report.failures == 3


@pytest.mark.parametrize("mode", ["consumer", "direct", "auto"])
def test_a_line_that_is_too_slow_for_a_message_in_one_timeout_is_read_all_the_same(
    filler: Filler, server: ServerProcess, mode: str
) -> None:
    created = filler.create(allow_direct=True)
    filler.fill(2, size=600_000)
    proxy, report = CuttingProxy(server.port, [], said=slow), Report()
    settings = ConnectSettings((f"127.0.0.1:{proxy.port}",), timeout_s=0.6)
    what = ReadRange(filler.name, 1, 3, created=created, mode=mode)

    batches = list(reading.read_range(settings, what, report))
    connected(settings).close()
    proxy.close()

    rows = [(row["seq"], row["size"]) for batch in batches for row in batch.to_pylist()]
    assert rows == [(1, 600_000), (2, 600_000)]
    assert (report.failures, proxy.connections) == (0, 1)


def slow(data: bytes) -> bytes:
    """Return a server's bytes later: a message takes longer than the timeout, but no piece of it does."""
    time.sleep(0.08)
    return data


def test_megabytes_of_payload_pass_in_bounded_batches(
    filler: Filler, client: Client, allow_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "BATCH_SIZE_MAX", 2_500_000)
    filler.create(retention="workqueue", allow_direct=allow_direct)
    filler.fill(7, size=1 << 20)

    batches = list(read_range(client, ReadRange(filler.name, 1, 8)))

    assert [batch.num_rows for batch in batches] == [2, 2, 2, 1]
    assert seqs(batches) == list(range(1, 8))


def test_an_answer_without_its_headers_is_told() -> None:
    with pytest.raises(ProtocolError, match="a direct get was answered with the headers"):
        direct.stored(Reply(1, b"i", b"", b"NATS/1.0\r\nNats-Stream: S\r\nNats-Sequence: x\r\n\r\n", b""))


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("2026-11-22T02:37:20.189459943Z", 1795315040189459943),
        ("2026-11-22T02:37:20.5Z", 1795315040500000000),
        ("2026-11-22T04:37:20.5+02:00", 1795315040500000000),
    ],
)
def test_times_keep_their_nanoseconds(text: str, ns: int) -> None:
    assert parse_rfc3339(text) == ns
