"""The archive: every message once, in files whose names give their ranges, whatever files existed before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa  # needs pyarrow
import pyarrow.parquet as pq

from pyjs_spark.errors import DataLoss, OptionError, StreamMissing
from pyjs_spark.lake import archive, lakes
from pyjs_spark.lake.archive import US_PER_DAY, TableFile, missing
from pyjs_spark.lake.lakes import Lake, Task
from pyjs_spark.options.reading import Options, parse_options
from pyjs_spark.read import modes
from pyjs_spark.read.ranges import ReadRange

Run = Callable[..., list[str]]


@pytest.fixture
def options(server: ServerProcess, filler: Filler) -> Callable[..., Options]:
    """Make options for the test's stream."""

    def make(**more: str) -> Options:
        servers = f"nats://127.0.0.1:{server.port}"
        return parse_options({"stream": filler.name, "servers": servers, **more})

    return make


@pytest.fixture
def run(options: Callable[..., Options], tmp_path: Path) -> Run:
    """Archive the test's stream, one task at a time, and return the names of the new files."""

    def archived(rows_per_file: int = 5, **more: str) -> list[str]:
        files = archive_here(tmp_path, options(**more), rows_per_file)
        return [Path(file.path).name.replace("0" * 16, "") for file in files]

    return archived


def seqs(root: Path) -> list[int]:
    """Return all sequences in the archive, in the order of the files' names."""
    files = sorted(root.rglob("date=*/seq=*.parquet"), key=lambda path: path.name)
    return [seq for path in files for seq in pq.ParquetFile(path).read().column("seq").to_pylist()]


def test_files_are_named_by_their_sequences(run: Run, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)

    names = run()

    assert names == ["seq=001-005.parquet", "seq=006-010.parquet", "seq=011-012.parquet"]
    assert seqs(tmp_path) == list(range(1, 13))
    (folder,) = {path.parent for path in tmp_path.rglob("seq=*.parquet")}
    assert folder == tmp_path / f"stream={filler.name}" / f"date={datetime.now(UTC):%Y-%m-%d}"


def test_a_run_goes_on_behind_the_last_one(run: Run, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)
    run()
    filler.fill(9)

    assert run() == ["seq=013-015.parquet", "seq=016-020.parquet", "seq=021-021.parquet"]
    assert run() == []
    assert seqs(tmp_path) == list(range(1, 22))


def test_a_file_that_is_gone_is_written_again_the_same(run: Run, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)
    run()
    (lost,) = tmp_path.rglob("seq=*0006-*.parquet")
    before = lost.read_bytes()
    lost.unlink()

    assert run() == ["seq=006-010.parquet"]
    assert lost.read_bytes() == before


def test_files_are_on_the_disk_before_they_have_their_names(
    run: Run, filler: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    filler.create()
    filler.fill(12)

    run()

    assert sorted(synced) == sorted(path.stat().st_ino for path in tmp_path.rglob("date=*/seq=*.parquet"))


def test_what_a_killed_run_left_behind_is_removed(run: Run, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(3)
    left = tmp_path / f"stream={filler.name}" / "_tmp" / "half"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")

    run()

    assert not left.exists()
    assert seqs(tmp_path) == [1, 2, 3]


def test_attempts_that_find_other_messages_of_two_days_leave_each_message_once(
    options: Callable[..., Options], filler: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files begin at another sequence on the second day; only the read messages are simulated."""
    filler.create()
    filler.fill(5)
    lake, told, left = Lake(str(tmp_path)), options(), [1, 2, 3, 4, 5]

    def read(*_: object) -> Iterator[pa.RecordBatch]:
        times = pa.array([0 if seq < 3 else US_PER_DAY for seq in left], pa.timestamp("us", tz="UTC"))
        yield pa.record_batch({"seq": left, "ts": times, "ts_ns": [1] * len(left)})

    def thrice(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        task(part[0])  # the file is lost with its machine
        left.remove(3)
        kept = task(part[0])
        left.remove(4)
        task(part[0])  # the task of a machine that was considered lost
        return [kept]

    monkeypatch.setattr(modes, "read_range", read)
    lakes.write_parts(thrice, lake, told, lakes.plan(lake, told, 5), 1)

    assert seqs(tmp_path) == [1, 2, 4, 5]
    assert lakes.plan(lake, told, 5) == []
    assert list(tmp_path.rglob("*.parquet")) == list(tmp_path.rglob("date=*/seq=*.parquet"))


def test_deleted_messages_are_covered_by_the_range(run: Run, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    filler.delete(2, 5, 6)

    assert run() == ["seq=001-005.parquet", "seq=006-010.parquet"]
    assert run() == []


def test_a_range_without_a_message_is_covered_and_holds_no_file(
    run: Run, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    filler.delete(*range(6, 11))

    assert run() == ["seq=001-005.parquet", "seq=006-010.parquet", "seq=011-012.parquet"]
    assert run() == []
    assert seqs(tmp_path) == [1, 2, 3, 4, 5, 11, 12]
    assert [path.parent.name for path in tmp_path.rglob("seq=*0006-*")] == ["_none"]


def test_a_filter_that_nothing_passes_is_no_error(run: Run, filler: Filler) -> None:
    filler.create(subjects=[f"{filler.subject.decode()}.>"])
    filler.fill(4)
    nothing = f"{filler.subject.decode()}.nothing"

    assert run(subjects=nothing) == ["seq=001-004.parquet"]
    assert run(subjects=nothing) == []


def test_what_went_before_it_was_archived_is_told(run: Run, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    run()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=14)

    with pytest.raises(DataLoss, match="messages 11 to 13 were removed before they were archived"):
        run()
    assert run(failOnDataLoss="false") == ["seq=014-015.parquet", "seq=016-020.parquet"]


def test_an_archive_of_another_stream_is_refused(run: Run, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    run()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()

    with pytest.raises(DataLoss, match="give it another root"):
        run()


def test_an_archive_of_other_options_is_refused(run: Run, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    run()

    with pytest.raises(OptionError, match="was begun with"):
        run(subjects=f"{filler.subject.decode()}.1")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "earliest"),
        ("endingOffsets", '{"S": 5}'),
        ("startingTimestamp", "5"),
        ("endingTimestamp", "5"),
        ("readMode", "direct"),
        ("minPartitions", "4"),
        ("maxRowsPerTrigger", "4"),
        ("maxBytesPerTrigger", "4"),
        ("minRowsPerTrigger", "4"),
        ("pushdown", "true"),
    ],
)
def test_an_option_without_an_effect_on_an_archive_is_refused(run: Run, option: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {option} is not allowed in an archive"):
        run(**{option: value})


def test_a_stream_that_is_not_there_is_told(run: Run) -> None:
    with pytest.raises(StreamMissing, match="there is no such stream"):
        run()
    with pytest.raises(StreamMissing, match="no stream has such a name"):
        run(stream="NOTHING_*")


def test_a_new_day_begins_a_new_file() -> None:
    day_us = 86_400_000_000
    times = pa.array([day_us - 1, day_us, day_us + 5, 2 * day_us], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"seq": pa.array([1, 2, 3, 4]), "ts": times})

    parts = [(day, rows.column("seq").to_pylist()) for day, rows in archive._by_day([batch, batch.slice(3)])]

    assert parts == [(0, [1]), (1, [2, 3]), (2, [4]), (2, [4])]


@given(st.sets(st.integers(1, 60)), st.integers(1, 60), st.integers(0, 60), st.integers(1, 20))
def test_what_is_missing_is_all_that_no_file_covers(
    there: set[int], first: int, count: int, rows_per_file: int
) -> None:
    found = list(missing(first, first + count, [(seq, seq + 1) for seq in there], rows_per_file))

    assert [seq for low, high in found for seq in range(low, high)] == sorted(
        set(range(first, first + count)) - there
    )
    assert all((low - 1) // rows_per_file == (high - 2) // rows_per_file for low, high in found)
