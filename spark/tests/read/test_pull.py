"""Ranges read by a pull consumer: equal for both servers and both decoders, also with faults during the read."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spark.tests.conftest import JETSTREAM, Filler, arrow_or_skip
from spark.tests.support.proxy import CuttingProxy
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa

from pyjs_spark.decode import wire
from pyjs_spark.decode.schema import arrow_schema
from pyjs_spark.errors import (
    ApiError,
    ConnectionLost,
    DataLoss,
    ProtocolError,
    ReadStalled,
    SeqTooLarge,
    ServerUnreachable,
    StreamMissing,
)
from pyjs_spark.nats import retry
from pyjs_spark.nats.client import Client, Reply
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import (
    pull,
)
from pyjs_spark.read.pull import ReadRange, Report, read_range
from pyjs_spark_fast import wire as _wire

Read = Callable[..., list[pa.RecordBatch]]


@pytest.fixture(params=[wire.Decoder, _wire.Decoder], ids=["pure", "compiled"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "Decoder", request.param)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    made = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",)))
    yield made
    made.close()


def seqs(batches: list[pa.RecordBatch]) -> list[int]:
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def read_all(client: Client, what: ReadRange, report: Report | None = None) -> list[pa.RecordBatch]:
    return list(read_range(client, what, report))


def test_a_range_becomes_batches_of_the_schema(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(3)
    filler.fill(2, headers=b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n")
    what = ReadRange(filler.name, 2, 6, created=created, batch_rows=3)

    batches = read_all(client, pickle.loads(pickle.dumps(what)))

    assert [batch.num_rows for batch in batches] == [3, 1]
    assert all(batch.schema.equals(arrow_schema(what.columns, "map")) for batch in batches)
    assert all(batch.validate(full=True) is None for batch in batches)
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["seq"] for row in rows] == [2, 3, 4, 5]
    assert [row["subject"] for row in rows] == [f"{filler.subject.decode()}.{n}" for n in (2, 0, 1, 2)]
    assert [row["data"] for row in rows] == [b"2", b"3", b"1", b"2"]
    assert [row["size"] for row in rows] == [1] * 4
    assert {row["stream"] for row in rows} == {filler.name}
    assert [row["headers"] for row in rows] == [None, None, *[[("A", ["1", "3"]), ("B", ["2"])]] * 2]
    assert filler.consumers() == []


def test_times_are_those_of_the_stream(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(1)
    stored = filler.api(f"STREAM.MSG.GET.{filler.name}", seq=1)["message"]
    assert isinstance(stored, dict)

    (batch,) = read_all(client, ReadRange(filler.name, 1, 2, columns=("ts_ns", "ts")))

    ns = batch.column("ts_ns")[0].as_py()
    assert batch.column("ts").cast(pa.int64())[0].as_py() == ns // 1000
    text = batch.column("ts")[0].as_py().strftime("%Y-%m-%dT%H:%M:%S.%f")
    assert stored["time"].removesuffix("Z").ljust(29, "0")[:26] == text
    assert stored["time"].removesuffix("Z").partition(".")[2].ljust(9, "0") == f"{ns % 10**9:09d}"


def test_headers_can_be_raw_or_left_out(filler: Filler, client: Client) -> None:
    filler.create()
    block = b"NATS/1.0\r\nA: \xff\r\n\r\n"
    filler.fill(1, headers=block)
    filler.fill(1)
    what = ReadRange(filler.name, 1, 3, headers="raw", columns=("headers", "seq"))

    (raw,) = read_all(client, what)
    (without,) = read_all(client, replace(what, headers="false", columns=("data", "seq")))

    assert raw.column("headers").to_pylist() == [block, None]
    assert raw.schema.equals(arrow_schema(("headers", "seq"), "raw"))
    assert without.column("data").to_pylist() == [b"1", b"1"]


def test_many_batches_and_many_requests_lose_and_repeat_nothing(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(5000)
    report = Report()
    what = ReadRange(filler.name, 1, 4900, batch_rows=1000, fetch_batch=300, columns=("seq", "data"))

    batches = read_all(client, what, report)

    assert [batch.num_rows for batch in batches] == [1000, 1000, 1000, 1000, 899]
    assert seqs(batches) == list(range(1, 4900))
    assert [data for batch in batches for data in batch.column("data").to_pylist()][::1000] == [
        b"1", b"1001", b"2001", b"3001", b"4001",
    ]  # fmt: skip
    assert (report.rows, report.lost, report.failures) == (4899, 0, 0)


def test_deleted_messages_are_passed_over(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(20)
    filler.delete(3, 4, 8, 15, 19, 20)
    report = Report()

    batches = read_all(client, ReadRange(filler.name, 1, 21, batch_rows=4), report)

    assert seqs(batches) == [1, 2, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18]
    assert (report.lost, report.failures) == (0, 0)


@pytest.mark.parametrize(("low", "high"), [(10, 10), (12, 5), (8, 11), (19, 21)])
def test_a_range_without_messages_is_empty(filler: Filler, client: Client, low: int, high: int) -> None:
    filler.create()
    filler.fill(20)
    filler.delete(8, 9, 10, 19, 20)

    assert read_all(client, ReadRange(filler.name, low, high)) == []
    assert filler.consumers() == []


def test_messages_behind_the_range_are_not_read(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(20)
    filler.delete(9, 10)

    assert seqs(read_all(client, ReadRange(filler.name, 5, 11))) == [5, 6, 7, 8]
    assert seqs(read_all(client, ReadRange(filler.name, 20, 21))) == [20]


def test_the_server_filters_by_subject(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(30)
    subject = filler.subject.decode()
    one = ReadRange(filler.name, 1, 29, subjects=(f"{subject}.1",))

    assert seqs(read_all(client, one)) == list(range(1, 29, 3))
    two = replace(one, subjects=(f"{subject}.1", f"{subject}.2"), batch_rows=7)
    assert seqs(read_all(client, two)) == [seq for seq in range(1, 29) if seq % 3]
    assert seqs(read_all(client, replace(one, subjects=(f"{subject}.*",)))) == list(range(1, 29))
    assert read_all(client, replace(one, subjects=(f"{subject}.none",))) == []


# -- data loss ---------------------------------------------------------------------------------------------------


def test_a_purge_between_plan_and_read_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(20)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=8)
    what, report = ReadRange(filler.name, 3, 16, created=created), Report()

    with pytest.raises(
        DataLoss, match=r"up to 5 messages from sequence 3 on are lost; the stream begins at 8"
    ):
        read_all(client, what)
    assert seqs(read_all(client, replace(what, fail_on_data_loss=False), report)) == list(range(8, 16))
    assert (report.lost, report.rows) == (5, 8)
    assert filler.consumers() == []


def test_a_purge_of_everything_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(20)
    filler.api(f"STREAM.PURGE.{filler.name}")
    what, report = ReadRange(filler.name, 3, 16, created=created), Report()

    with pytest.raises(DataLoss, match=r"up to 13 messages from sequence 3 on"):
        read_all(client, what)
    assert read_all(client, replace(what, fail_on_data_loss=False), report) == []
    assert report.lost == 13


def test_a_purge_behind_the_reader_is_none(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(20)
    reading = read_range(client, ReadRange(filler.name, 1, 21, created=created, batch_rows=10))
    first = next(reading)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=11)

    assert seqs([first, *reading]) == list(range(1, 21))


def test_a_purge_ahead_of_the_reader_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(30)
    what, report = ReadRange(filler.name, 1, 31, created=created, batch_rows=10), Report()
    reading = read_range(client, what)
    next(reading)
    tolerant = read_range(client, replace(what, fail_on_data_loss=False), report)
    first = next(tolerant)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=16)

    with pytest.raises(
        DataLoss, match=r"up to 5 messages from sequence 11 on are lost; the stream begins at 16"
    ):
        list(reading)
    assert seqs([first, *tolerant]) == [*range(1, 11), *range(16, 31)]
    assert report.lost == 5


def test_a_purge_of_all_that_is_ahead_ends_the_read(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(30)
    report = Report()
    what = ReadRange(filler.name, 1, 31, created=created, batch_rows=10, fail_on_data_loss=False)
    reading = read_range(client, what, report)
    first = next(reading)
    filler.api(f"STREAM.PURGE.{filler.name}")

    assert seqs([first, *reading]) == list(range(1, 11))
    assert report.lost == 20


def test_deletes_ahead_of_the_reader_are_no_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(30)
    reading = read_range(client, ReadRange(filler.name, 1, 31, created=created, batch_rows=10))
    first = next(reading)
    filler.delete(*range(15, 31))

    assert seqs([first, *reading]) == list(range(1, 15))


def test_a_stream_made_again_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(20)
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    filler.fill(20)
    what, report = ReadRange(filler.name, 1, 21, created=created), Report()

    with pytest.raises(
        DataLoss, match=r"another stream has its name by now: it was made at 2.*failOnDataLoss=false"
    ):
        read_all(client, what)
    assert read_all(client, replace(what, fail_on_data_loss=False), report) == []
    assert report.lost == 20
    assert seqs(read_all(client, replace(what, created=""))) == list(range(1, 21))


def test_a_stream_made_again_during_the_read_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(20)
    report = Report()
    what = ReadRange(filler.name, 1, 21, created=created, batch_rows=10, fail_on_data_loss=False)
    reading = read_range(client, what, report)
    first = next(reading)
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    filler.fill(20)

    assert seqs([first, *reading]) == list(range(1, 11))
    assert report.lost == 10


def test_a_stream_that_is_gone_is_told(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(5)
    filler.api(f"STREAM.DELETE.{filler.name}")

    with pytest.raises(DataLoss, match="it was deleted since the read was planned"):
        read_all(client, ReadRange(filler.name, 1, 6, created=created))
    with pytest.raises(StreamMissing, match=f"stream {filler.name}: there is no such stream"):
        read_all(client, ReadRange(filler.name, 1, 6))


def test_a_stream_that_ends_before_the_range_is_data_loss(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(5)

    with pytest.raises(DataLoss, match=r"up to 3 messages from sequence 6 on are lost; the stream ends at 5"):
        read_all(client, ReadRange(filler.name, 1, 9, created=created))


# -- trouble -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[60_000], [4_000, 90_000, 5_000], [3_000, 3_100, 3_300, 40_000, 61_234]])
def test_a_cut_connection_is_made_again_and_nothing_is_lost_or_repeated(
    filler: Filler, server: ServerProcess, cuts: list[int]
) -> None:
    created = filler.create()
    filler.fill(3000, size=50)
    proxy, report = CuttingProxy(server.port, cuts), Report()
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))

    what = ReadRange(filler.name, 1, 3001, created=created, batch_rows=700)
    batches = read_all(client, what, report)
    client.close()
    proxy.close()

    assert [batch.num_rows for batch in batches] == [700, 700, 700, 700, 200]
    assert seqs(batches) == list(range(1, 3001))
    assert report.failures == len(cuts) == proxy.connections - 1


def test_connections_cut_again_and_again_lose_nothing_of_a_filter(
    filler: Filler, server: ServerProcess
) -> None:
    created = filler.create()
    filler.fill(3000, size=50)
    # the cuts also affect requests for the stream's info
    cuts = [3000 + 977 * number % 9000 for number in range(40)]
    proxy, report = CuttingProxy(server.port, cuts), Report()
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))
    subjects = tuple(f"{filler.subject.decode()}.{token}" for token in (1, 2))

    what = ReadRange(filler.name, 1, 3001, subjects=subjects, created=created, batch_rows=20)
    batches = read_all(client, what, report)
    client.close()
    proxy.close()

    assert seqs(batches) == [seq for seq in range(1, 3001) if seq % 3]
    assert [batch.num_rows for batch in batches] == [20] * 100
    assert report.failures >= len(cuts)


def test_another_read_that_connects_again_does_not_stop_this_one(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(100)
    report = Report()
    reading = read_range(client, ReadRange(filler.name, 1, 101, created=created, batch_rows=10), report)
    first = next(reading)
    client.reconnect()

    assert seqs([first, *reading]) == list(range(1, 101))
    assert report.failures == 0


def test_a_killed_server_is_waited_for(server: ServerProcess, tmp_path: Path) -> None:
    own = ServerProcess(server._command, JETSTREAM, tmp_path, with_http=False)
    own.start()
    filler = Filler(own.port, "KILLED")
    created = filler.create(storage="file")
    filler.fill(1000)
    proxy, report = CuttingProxy(own.port, []), Report()
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))
    reading = read_range(client, ReadRange("KILLED", 1, 1001, created=created, batch_rows=400), report)
    first = next(reading)

    own.kill()
    own.start()
    proxy.target = own.port

    assert seqs([first, *reading]) == list(range(1, 1001))
    assert report.failures >= 1
    client.close()
    proxy.close()
    own.kill()


def test_a_server_that_stays_away_is_told(
    filler: Filler, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.create()
    filler.fill(100)
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    proxy = CuttingProxy(server.port, [])
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))
    reading = read_range(client, ReadRange(filler.name, 1, 101, batch_rows=10))
    next(reading)
    client.close()
    proxy.close()

    with pytest.raises(ServerUnreachable, match="Connection refused"):
        list(reading)


def test_a_consumer_that_vanished_is_made_again(filler: Filler, client: Client) -> None:
    created = filler.create()
    filler.fill(100)
    report = Report()
    reading = read_range(client, ReadRange(filler.name, 1, 101, created=created, batch_rows=10), report)
    first = next(reading)
    for name in filler.consumers():
        filler.api(f"CONSUMER.DELETE.{filler.name}.{name}")

    assert seqs([first, *reading]) == list(range(1, 101))
    assert report.failures == 1
    assert filler.consumers() == []


def test_a_read_that_is_given_up_leaves_nothing_behind(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(100)
    reading = read_range(client, ReadRange(filler.name, 1, 101, batch_rows=10))
    next(reading)
    assert len(filler.consumers()) == 1

    reading.close()  # type: ignore[attr-defined]

    assert filler.consumers() == []
    assert seqs(read_all(client, ReadRange(filler.name, 90, 101))) == list(range(90, 101))


def test_two_reads_share_a_connection(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(100)
    what = ReadRange(filler.name, 1, 101, batch_rows=10)
    pairs = list(zip(read_range(client, what), read_range(client, replace(what, low=50)), strict=False))

    assert seqs([one for one, _ in pairs]) == list(range(1, 61))
    assert seqs([other for _, other in pairs]) == list(range(50, 101))


def test_messages_that_a_paused_consumer_holds_back_stall_the_read(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(30)
    what = ReadRange(filler.name, 1, 31, batch_rows=10, fetch_expires_s=0.1, idle_timeout_s=0.2)
    reading = read_range(client, what)
    next(reading)
    (name,) = filler.consumers()
    filler.api(f"CONSUMER.PAUSE.{filler.name}.{name}", pause_until="2099-01-01T00:00:00Z")

    with pytest.raises(ReadStalled, match=r"no message after sequence 10 for .* though the stream has some"):
        list(reading)


def test_a_stream_that_keeps_no_idle_consumer_for_long_is_read(filler: Filler, client: Client) -> None:
    filler.create(consumer_limits={"inactive_threshold": 5_000_000_000, "max_ack_pending": 3})
    filler.fill(5)

    assert seqs(read_all(client, ReadRange(filler.name, 1, 6))) == [1, 2, 3, 4, 5]


def test_a_stream_without_room_for_a_consumer_is_read_without_one(filler: Filler, client: Client) -> None:
    filler.create(max_consumers=1)
    filler.fill(9)
    what, report = ReadRange(filler.name, 1, 10, batch_rows=4), Report()
    reading = read_range(client, what, report)
    batches = [next(reading)]
    mine = filler.consumers()[0]
    filler.api(f"CONSUMER.DELETE.{filler.name}.{mine}")
    config = {"durable_name": "other", "ack_policy": "explicit"}
    filler.api(f"CONSUMER.CREATE.{filler.name}.other", stream_name=filler.name, config=config)

    batches += reading

    assert [seqs([batch]) for batch in batches] == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    assert report.rows == 9
    assert filler.consumers() == ["other"]


def test_subjects_that_overlap_are_read_without_a_consumer(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(7)
    subject = filler.subject.decode()

    batches = read_all(client, ReadRange(filler.name, 1, 8, subjects=("*.1", f"{subject}.*", "none.>")))

    assert seqs(batches) == list(range(1, 8))
    assert seqs(read_all(client, ReadRange(filler.name, 1, 8, subjects=("*.1", f"{subject}.1")))) == [1, 4, 7]


def test_a_refused_consumer_is_told(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(1)

    with pytest.raises(ApiError, match=r"CONSUMER.CREATE"):
        read_all(client, ReadRange(filler.name, 1, 2, subjects=("a..b",)))


def test_a_range_above_what_spark_holds_is_refused(client: Client) -> None:
    with pytest.raises(SeqTooLarge, match=r"sequence 9223372036854775808 is above 2\^63-1"):
        read_all(client, ReadRange("S", 1, 2**63 + 1))


@pytest.fixture
def reading(client: Client) -> pull.PullRead:
    """A read whose consumer has sent one request; it needs no stream."""
    made = pull.PullRead(client, ReadRange("S", 1, 10), Report())
    made._consumer = pull._Consumer(client, "c", 0)
    made._consumer._inbox = b"_INBOX.x"
    made._consumer.next_reply()
    return made


def status(text: bytes, subject: bytes = b"_INBOX.x.1", reply: bytes = b"") -> Reply:
    return Reply(9, subject, reply, b"NATS/1.0 %b\r\n\r\n" % text if text else b"", b"")


@pytest.mark.parametrize("text", [b"404 No Messages", b"408 Request Timeout"])
def test_a_request_that_found_too_little_ends(reading: pull.PullRead, text: bytes) -> None:
    assert reading._ended(status(text)) == wire.NEED_MORE


@pytest.mark.parametrize("text", [b"409 Batch Completed", b"408 Request Timeout", b"409 Consumer Deleted"])
def test_a_status_of_an_earlier_request_is_passed_over(reading: pull.PullRead, text: bytes) -> None:
    assert reading._ended(status(text, b"_INBOX.x.0")) is None


def test_heartbeats_end_nothing_and_flow_control_is_answered(reading: pull.PullRead, client: Client) -> None:
    sid = client.subscribe(b"flow.S")

    assert reading._ended(status(b"100 Idle Heartbeat")) is None
    assert reading._ended(status(b"100 FlowControl Request", reply=b"flow.S")) is None
    answer = client.next_message(time.monotonic() + 10)
    assert answer is not None
    assert (answer.sid, answer.payload) == (sid, b"")


@pytest.mark.parametrize(
    "text", [b"409 Consumer Deleted", b"409 Leadership Change", b"503", b"409 Server Shutdown"]
)
def test_statuses_of_a_consumer_that_is_gone_ask_for_another(reading: pull.PullRead, text: bytes) -> None:
    with pytest.raises(pull.Broken, match="the consumer is gone"):
        reading._ended(status(text))


@pytest.mark.parametrize(
    ("text", "said"), [(b"412 Required Api Level", "412 Required"), (b"", "is no delivery")]
)
def test_what_no_server_should_answer_is_told(reading: pull.PullRead, text: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        reading._ended(status(text))


def test_a_message_that_never_fits_is_told(reading: pull.PullRead) -> None:
    with pytest.raises(ProtocolError, match="does not fit into"):
        list(iter(lambda: reading._ended(status(b"409 Message Size Exceeds MaxBytes")), None))


@pytest.mark.parametrize(
    ("state", "error"),
    [(wire.TOO_LARGE, SeqTooLarge), (wire.GAP, pull.Broken), (wire.NEED_MORE, ConnectionLost)],
)
def test_states_that_end_no_request_are_errors(
    reading: pull.PullRead, state: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"after sequence|sequence after|nothing came for 5 s"):
        reading._failed(state, 5)


# -- size --------------------------------------------------------------------------------------------------------


def test_megabytes_of_payload_pass(filler: Filler, client: Client) -> None:
    filler.create()
    filler.fill(12, size=1 << 20)

    batches = read_all(client, ReadRange(filler.name, 1, 13, columns=("seq", "size", "data")))

    assert seqs(batches) == list(range(1, 13))
    assert [data[:3].rstrip(b".") for batch in batches for data in batch.column("data").to_pylist()] == [
        b"%d" % number for number in range(1, 13)
    ]


def test_batches_are_bounded_in_bytes_and_a_larger_message_is_one_alone(
    filler: Filler, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "BATCH_SIZE_MAX", 100_000)
    filler.create()
    filler.fill(10, size=30_000)
    filler.fill(2, size=1_000_000)
    filler.fill(10, size=30_000)
    report = Report()

    batches = read_all(client, ReadRange(filler.name, 1, 23), report)

    assert seqs(batches) == list(range(1, 23))
    sizes = [batch.column("size").to_pylist() for batch in batches]
    assert all(sum(size) <= 100_000 or len(size) == 1 for size in sizes)
    assert max(len(size) for size in sizes) == 3
    assert report.failures == 0
