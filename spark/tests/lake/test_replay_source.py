"""The files and sequences that a replay finds in an archive of each format, against both servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, required
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow.parquet as pq  # needs pyarrow

from pyjs_spark.errors import DataLoss, OptionError, SparkError
from pyjs_spark.lake import lakes
from pyjs_spark.lake.lakes import Lake
from pyjs_spark.lake.replay import ledger as replay_ledger
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.lake.replay import source as replay_source
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.nats.client import Client  # needs pyarrow
from pyjs_spark.options.reading import Options, parse_options
from pyjs_spark.write.marker import Progress

Make = Callable[[str], Replay]


@pytest.fixture
def options(server: ServerProcess, filler: Filler) -> Options:
    return parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})


@pytest.fixture
def make(server: ServerProcess, filler: Filler, tmp_path: Path) -> Make:
    """Return a function that makes a replay of the test's archive in a given format."""

    def build(kind: str) -> Replay:
        head = {
            "source": str(tmp_path),
            "format": kind,
            "stream": filler.name,
            "target": filler.name,
            "id": "x",
        }
        return replay.make(head, [], {"servers": f"nats://127.0.0.1:{server.port}"})

    return build


def write(options: Options, root: Path, kind: str) -> None:
    """Archive new messages, in files of five sequences."""
    if kind != "parquet" and not required("spark"):
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    archive_here(Lake(str(root), kind), options)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_every_format_comes_down_to_files_and_what_they_hold(
    filler: Filler, options: Options, make: Make, tmp_path: Path, kind: str
) -> None:
    created = filler.create()
    filler.fill(12)
    filler.delete(*range(6, 11))
    write(options, tmp_path, kind)

    found = replay_source.look(make(kind))
    (batch,) = replay_run.plan(make(kind)).batches

    assert (found.created, found.headers) == (created, "map")
    held = [file for file in found.files if file.size]
    assert [(file.low, file.high) for file in held] == [(1, 6), (11, 13)]
    assert [pq.read_table(file.path).column("seq").to_pylist() for file in held] == [
        [1, 2, 3, 4, 5],
        [11, 12],
    ]
    assert (batch.low, batch.high, len(batch.files)) == (1, 13, 2)
    assert replay_run.rows_of(make(kind), batch) == 7


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_an_archive_of_another_format_is_refused_by_name(
    filler: Filler, options: Options, make: Make, tmp_path: Path, kind: str
) -> None:
    filler.create()
    filler.fill(3)
    write(options, tmp_path, kind)
    other = "delta" if kind == "parquet" else "parquet"

    with pytest.raises(OptionError, match=f"was begun with format={kind}; go on with that one"):
        replay_source.look(make(other))


def test_files_that_a_compaction_has_not_removed_yet_are_left_out(
    filler: Filler, options: Options, make: Make, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(10)
    write(options, tmp_path, "parquet")
    first = next(tmp_path.rglob("seq=*0001-*.parquet"))
    first.with_name("seq=0000000000000000001-0000000000000000010.parquet").write_bytes(first.read_bytes())

    found = replay_source.look(make("parquet"))

    assert [(file.low, file.high) for file in found.files] == [(1, 11)]


def test_what_a_killed_compaction_left_is_not_read(
    filler: Filler, options: Options, make: Make, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(10)
    write(options, tmp_path, "parquet")
    half = tmp_path / f"stream={filler.name}" / "_tmp" / "abc" / "date=2026-01-31"
    half.mkdir(parents=True)
    (half / "seq=0000000000000000001-0000000000000000020.parquet").write_bytes(b"PAR1 and no more")

    found = replay_source.look(make("parquet"))
    lacking = lakes.plan(Lake(str(tmp_path)), options, 5)

    assert [(file.low, file.high) for file in found.files] == [(1, 6), (6, 11)]
    assert lacking == []
    half.mkdir(parents=True)  # planning removed it
    (half / "seq=0000000000000000001-0000000000000000020.parquet").write_bytes(b"PAR1 and no more")
    filler.fill(2)
    assert [(what.low, what.high) for what in lakes.plan(Lake(str(tmp_path)), options, 5)] == [(11, 13)]


def test_progress_that_was_forgotten_starts_over(
    filler: Filler, options: Options, make: Make, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)
    write(options, tmp_path, "parquet")
    found = replace(make("parquet"), id=filler.name)
    client = Client(found.options.connect)
    Progress(client, found.options, found.id).keys.make_bucket(1)
    key = f"$KV.{found.options.progress_bucket}.{filler.name}.replay"
    ledger = replay_ledger.write(client, found, replay_run.plan(found).ledger)
    replay_ledger.write(client, found, replace(ledger, batch=1, high=4))
    assert replay_run.plan(found).batches == ()
    filler.raw.send(f"HPUB {key} 31 31\r\nNATS/1.0\r\nKV-Operation: DEL\r\n\r\n\r\n".encode())
    filler.raw.fence()

    planned = replay_run.plan(found)

    assert [(batch.low, batch.high) for batch in planned.batches] == [(1, 4)]
    assert replay_ledger.write(client, found, planned.ledger).revision > 0
    client.close()


def test_a_damaged_file_is_named(filler: Filler, options: Options, make: Make, tmp_path: Path) -> None:
    filler.create()
    filler.fill(3)
    write(options, tmp_path, "parquet")
    (path,) = tmp_path.rglob("seq=*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    (batch,) = replay_run.plan(make("parquet")).batches

    with pytest.raises(
        SparkError, match=f"{path}: cannot be read: .*; with quality you see what else is damaged"
    ) as caught:
        replay_run.rows_of(make("parquet"), batch)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_damaged_table_is_told_in_one_line(
    filler: Filler, options: Options, make: Make, tmp_path: Path, kind: str
) -> None:
    filler.create()
    filler.fill(3)
    write(options, tmp_path, kind)
    damaged = "_delta_log/*.json" if kind == "delta" else "metadata/*.metadata.json"
    for path in (tmp_path / filler.name).glob(damaged):
        path.write_text("{")

    with pytest.raises(SparkError, match=f"{tmp_path}/{filler.name}: ") as caught:
        replay_source.look(make(kind))
    assert "\n" not in str(caught.value)


def test_a_hole_is_data_loss(filler: Filler, options: Options, make: Make, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)
    write(options, tmp_path, "parquet")
    next(tmp_path.rglob("seq=*0006-*.parquet")).unlink()

    with pytest.raises(DataLoss, match="lacks messages 6 to 10; run the archive again"):
        replay_run.plan(make("parquet"))


def test_raw_headers_are_refused(filler: Filler, make: Make, server: ServerProcess, tmp_path: Path) -> None:
    filler.create()
    filler.fill(1)
    servers = f"nats://127.0.0.1:{server.port}"
    raw = parse_options({"stream": filler.name, "servers": servers, "includeHeaders": "raw"})
    write(raw, tmp_path, "parquet")

    with pytest.raises(OptionError, match="archived with includeHeaders=raw; a replay needs map"):
        replay_source.look(make("parquet"))
