"""Bulk reads from our server return the same rows as reads by a consumer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spark.tests.conftest import JETSTREAM, Filler, Start, arrow_or_skip, our_command_from_anywhere
from spark.tests.support.records import Stored, piece
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa  # needs pyarrow

from pyjs_spark.decode import entries
from pyjs_spark.errors import AccessDenied, BulkRefused, DataLoss, ProtocolError
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import (
    bulk,
    pull,
)
from pyjs_spark.read import modes as reading
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark_fast import entries as _entries

ALL = ("seq", "ts_ns", "subject", "headers", "data", "size")
HEADERS = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"
Read = Callable[..., list[dict[str, object]]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Our server only: nats-server has no bulk reads."""
    directory = tmp_path_factory.mktemp("bulk")
    process = ServerProcess(our_command_from_anywhere(), JETSTREAM, directory, with_http=False)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    made = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",), timeout_s=5))
    yield made
    made.close()


@pytest.fixture
def read(client: Client, filler: Filler) -> Read:
    def rows(low: int, high: int, report: Report | None = None, **given: object) -> list[dict[str, object]]:
        what = ReadRange(filler.name, low, high, **({"columns": ALL} | given))  # type: ignore[arg-type]
        return [row for batch in bulk.read_range(client, what, report) for row in batch.to_pylist()]

    return rows


def by_consumer(
    client: Client, filler: Filler, low: int, high: int, **given: object
) -> list[dict[str, object]]:
    what = ReadRange(filler.name, low, high, columns=ALL, **given)  # type: ignore[arg-type]
    return [row for batch in pull.read_range(client, what) for row in batch.to_pylist()]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("kind", [entries.Decoder, _entries.Decoder], ids=["pure", "compiled"])
def test_the_rows_are_those_of_a_consumer(
    kind: type,
    storage: str,
    read: Read,
    client: Client,
    filler: Filler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "Decoder", kind)
    filler.create(storage=storage, allow_direct=True)
    filler.fill(700, size=2000, headers=HEADERS)
    filler.fill(800, size=100)
    filler.delete(3, 4, 700, 1500)
    report = Report()

    found = read(2, 1401, report, bulk_batch_rows=300)

    assert found == by_consumer(client, filler, 2, 1401)
    assert (len(found), report.rows, report.lost, report.failures) == (1396, 1396, 0, 0)


def test_a_record_that_is_damaged_in_the_file_is_found_by_the_reader_and_told_by_the_server(
    read: Read, client: Client, filler: Filler
) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(40_000, size=300)
    listed = json.loads(client.request(f"$JS.API.PYJS.BULK.LIST.{filler.name}", b"").payload)
    assert listed["segments"][0]["sealed"]
    path = Path(listed["directory"]) / "00000001.seg"
    with path.open("r+b") as file:
        file.seek(2_000_000 // 400 * 400)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x40]))
    report = Report()

    seqs = [row["seq"] for row in read(1, 40_001, report, columns=("seq", "data"), fail_on_data_loss=False)]

    assert len(seqs) == 39_999
    assert report.lost == 1
    assert json.loads(client.request(f"$JS.API.STREAM.INFO.{filler.name}", b"").payload)["state"]["lost"][
        "msgs"
    ]


def test_a_record_of_which_the_check_alone_is_damaged_is_sent_once_the_server_has_looked(
    read: Read, client: Client, filler: Filler
) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(40_000, size=300)
    listed = json.loads(client.request(f"$JS.API.PYJS.BULK.LIST.{filler.name}", b"").payload)
    path = Path(listed["directory"]) / "00000001.seg"
    data = bytearray(path.read_bytes())
    at = 64
    for _ in range(100):
        at += int.from_bytes(data[at : at + 4], "little")
    with path.open("r+b") as file:
        file.seek(at + 28)
        file.write(bytes([data[at + 28] ^ 0x40]))
    report = Report()

    seqs = [row["seq"] for row in read(1, 40_001, report, columns=("seq", "data"))]

    assert seqs == list(range(1, 40_001))
    assert report.lost == 0


def test_columns_of_entries_alone_need_no_record(read: Read, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(20, size=100)

    assert read(1, 21, columns=("size", "seq")) == [{"size": 100, "seq": seq} for seq in range(1, 21)]


def test_subjects_are_filtered_by_the_server(read: Read, client: Client, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(3000, size=500, tokens=7)
    name = filler.subject.decode()
    wanted = (f"{name}.1", f"{name}.3")

    found = read(10, 2900, subjects=wanted)

    assert found == by_consumer(client, filler, 10, 2900, subjects=wanted)
    assert read(1, 3001, subjects=(f"{name}.none",)) == []


def test_several_segments_and_large_messages_are_read(read: Read, client: Client, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(12, size=2_000_000)
    filler.fill(5, size=10)

    found = read(1, 18)

    assert [row["seq"] for row in found] == list(range(1, 18))
    assert [row["size"] for row in found] == [2_000_000] * 12 + [10] * 5
    assert found == by_consumer(client, filler, 1, 18)


def test_batches_end_at_their_rows_and_nothing_is_on_its_way_meanwhile(
    client: Client, filler: Filler
) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(5000, size=300)
    what = ReadRange(filler.name, 1, 5001, columns=("seq", "data"), bulk_batch_rows=900)

    sizes = []
    for batch in bulk.read_range(client, what):
        sizes.append(batch.num_rows)
        client.ping()  # parses frames that have arrived

    assert sizes == [900] * 5 + [500]


def test_two_reads_of_one_connection_do_not_disturb_each_other(client: Client, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(5000, size=300)
    what = ReadRange(filler.name, 1, 5001, columns=("seq", "data"), bulk_batch_rows=700)

    pairs = list(zip(bulk.read_range(client, what), bulk.read_range(client, what), strict=True))

    assert sum(one.num_rows for one, _ in pairs) == 5000
    assert all(one.equals(other) for one, other in pairs)


def test_nothing_is_left_on_the_server(read: Read, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(10)
    before = filler.api(f"STREAM.INFO.{filler.name}")["state"]

    read(1, 11)

    assert filler.api(f"STREAM.INFO.{filler.name}")["state"] == before
    assert filler.consumers() == []


def test_a_lost_connection_is_made_again(client: Client, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(5000, size=300)
    report, seqs = Report(), []
    what = ReadRange(filler.name, 1, 5001, columns=("seq", "data"), bulk_batch_rows=900)

    for batch in bulk.read_range(client, what, report):
        seqs += batch.column("seq").to_pylist()
        if len(seqs) == 1800:
            client.close()

    assert (seqs, report.failures > 0) == (list(range(1, 5001)), True)


# -- losses ---------------------------------------------------------------------------------------------------------


def test_trimmed_messages_are_loss_and_deleted_ones_are_not(read: Read, filler: Filler) -> None:
    created = filler.create(storage="file", allow_direct=True)
    filler.fill(20)
    filler.delete(9)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)
    report = Report()

    with pytest.raises(DataLoss, match="up to 5 messages from sequence 1 on are lost"):
        read(1, 21, created=created)
    found = read(1, 21, report, created=created, fail_on_data_loss=False)

    assert ([row["seq"] for row in found][:4], report.lost) == ([6, 7, 8, 10], 5)
    assert len(read(6, 21, created=created)) == 14


def test_what_is_trimmed_while_it_is_read_is_loss(client: Client, filler: Filler) -> None:
    created = filler.create(storage="file", allow_direct=True)
    filler.fill(4000, size=300)
    report, seqs = Report(), []
    what = ReadRange(
        filler.name,
        1,
        4001,
        created=created,
        columns=("seq", "data"),
        bulk_batch_rows=500,
        fail_on_data_loss=False,
    )

    for batch in bulk.read_range(client, what, report):
        seqs += batch.column("seq").to_pylist()
        if len(seqs) == 500:
            filler.api(f"STREAM.PURGE.{filler.name}", seq=3901)

    assert (len(seqs) + report.lost, seqs[-1]) == (4000, 4000)
    assert report.lost > 0


def test_a_recreated_stream_is_loss(read: Read, filler: Filler) -> None:
    filler.create(storage="file", allow_direct=True)
    filler.fill(5)
    report = Report()
    then = "2020-01-01T00:00:00Z"

    with pytest.raises(DataLoss, match="another stream has its name by now"):
        read(1, 6, created=then)
    assert read(1, 6, report, created=then, fail_on_data_loss=False) == []
    assert report.lost == 5


def test_a_recreated_stream_while_it_is_read_is_loss(client: Client, filler: Filler) -> None:
    created = filler.create(storage="file", allow_direct=True)
    filler.fill(4000, size=300)
    what = ReadRange(filler.name, 1, 4001, created=created, columns=("seq", "data"), bulk_batch_rows=500)
    batches = bulk.read_range(client, what)
    next(batches)
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create(storage="file", allow_direct=True)

    with pytest.raises(DataLoss, match="another stream has its name by now"):
        list(batches)


def test_a_stream_that_ends_early_is_loss(read: Read, filler: Filler) -> None:
    created = filler.create(storage="file", allow_direct=True)
    filler.fill(5)
    report = Report()

    with pytest.raises(DataLoss, match="the stream ends at 5"):
        read(1, 9, created=created)
    assert len(read(1, 9, report, created=created, fail_on_data_loss=False)) == 5
    assert report.lost == 3


def test_what_consumers_removed_is_no_loss(read: Read, filler: Filler) -> None:
    created = filler.create(storage="file", allow_direct=True, retention="workqueue")
    filler.fill(20)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)

    assert [row["seq"] for row in read(1, 21, created=created)] == list(range(6, 21))


# -- what refuses ---------------------------------------------------------------------------------------------------


def test_a_stream_without_direct_gets_is_refused_and_auto_goes_another_way(
    server: ServerProcess, read: Read, filler: Filler
) -> None:
    filler.create(storage="file")
    filler.fill(5)
    settings = ConnectSettings((f"nats://127.0.0.1:{server.port}",))
    what = ReadRange(filler.name, 1, 6, columns=("seq",))

    with pytest.raises(BulkRefused, match="set allow_direct in its configuration"):
        read(1, 6)
    assert pa.Table.from_batches(reading.read_range(settings, what)).num_rows == 5


def test_a_server_of_another_make_is_refused_and_auto_reads_as_ever(start_peer: Start) -> None:
    peer = start_peer(JETSTREAM)
    filler = Filler(peer.port, "PEER")
    filler.create(allow_direct=True)
    filler.fill(5)
    filler.raw.close()
    settings = ConnectSettings((f"nats://127.0.0.1:{peer.port}",))
    what = ReadRange("PEER", 1, 6, columns=("seq",))

    with pytest.raises(BulkRefused, match="is no pyjs-server that offers bulk reads; use readMode=auto"):
        list(reading.read_range(settings, replace(what, mode="bulk")))
    assert pa.Table.from_batches(reading.read_range(settings, what)).num_rows == 5


def test_a_user_who_may_not_read_in_bulk_reads_by_a_consumer(tmp_path: Path) -> None:
    user = 'user: u, password: p, permissions: {publish: {deny: ["$JS.API.PYJS.>"]}}'
    config = f"{JETSTREAM}\nauthorization: {{users: [{{{user}}}, {{user: all, password: p}}]}}"
    process = ServerProcess(our_command_from_anywhere(), config, tmp_path, with_http=False)
    process.start()
    try:
        servers = (f"nats://127.0.0.1:{process.port}",)
        owner = Client(ConnectSettings(servers, user="all", password="p"))
        owner.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
        assert owner.request("s", b"1").payload
        settings = ConnectSettings(servers, user="u", password="p")
        what = ReadRange("S", 1, 2, columns=("seq", "data"))

        with pytest.raises(AccessDenied, match="needs that permission"):
            list(reading.read_range(settings, replace(what, mode="bulk")))
        assert pa.Table.from_batches(reading.read_range(settings, what)).num_rows == 1
        owner.close()
    finally:
        process.kill()


def test_auto_takes_bulk(server: ServerProcess, filler: Filler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "read_range", None)
    filler.create(storage="file", allow_direct=True)
    filler.fill(5)
    settings = ConnectSettings((f"nats://127.0.0.1:{server.port}",))

    batches = reading.read_range(settings, ReadRange(filler.name, 1, 6, columns=("seq",)))

    assert pa.Table.from_batches(batches).num_rows == 5


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "0 bytes, which are no chunk"),
        (b"x" * 64, "no chunk of version 1"),
        (b"PYJB\x02\x00" + bytes(58), "no chunk of version 1"),
        (b"PYJB\x01\x00" + bytes(58) + b"more", "a chunk of 0 entries and 0 bytes of records has 68 bytes"),
    ],
)
def test_what_is_no_chunk_is_told(payload: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        bulk.parse_chunk(memoryview(payload))


def test_a_chunk_is_taken_apart() -> None:
    table, data = piece([Stored(7, payload=b"x")], b"")
    head = struct.pack("<4sHHQQQQIIIIQ", b"PYJB", 1, 3, 5, 9, 2, 30, 1, len(data), 4, 0, 77)

    chunk = bulk.parse_chunk(memoryview(head + table + data))

    assert (chunk.flags, chunk.first, chunk.next, chunk.stream_first, chunk.stream_last) == (3, 5, 9, 2, 30)
    assert (chunk.messages, bytes(chunk.table), bytes(chunk.data)) == (1, table, data)
    assert (chunk.segment, chunk.lost, chunk.incarnation) == (4, 0, 77)


def test_errors_are_told_from_chunks() -> None:
    said = {"error": {"code": 503, "err_code": 20001, "description": "no"}}

    assert str(bulk._error_in(json.dumps(said).encode())) == "bulk read: no (code 503, err_code 20001)"
    assert isinstance(bulk._error_in(b"{}"), ProtocolError)
