"""Compaction: the same rows in fewer files, also after kills; and snapshots of the last messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.support.archived import archive_here
from spark.tests.support.places import SOURCES
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa  # needs pyarrow
import pyarrow.parquet as pq

from pyjs_spark.errors import OptionError, SparkError, StreamMissing
from pyjs_spark.lake import compact
from pyjs_spark.lake.tables.parquet import file_name
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "date=2026-11-20"


def write(root: Path, *ranges: tuple[int, int], day: str = DAY, without: tuple[int, ...] = ()) -> None:
    """Write files of an archive of stream S; the data of each row is its sequence."""
    folder = root / "stream=S" / day
    folder.mkdir(parents=True, exist_ok=True)
    (root / "stream=S" / "_archive.json").write_text("{}")
    for low, high in ranges:
        seqs = [seq for seq in range(low, high) if seq not in without]
        rows = pa.table({"seq": pa.array(seqs, pa.int64()), "data": [b"%d" % seq for seq in seqs]})
        pq.write_table(rows, folder / file_name(low, high))


def names(root: Path) -> list[str]:
    """Return the short names of the files that an engine reads."""
    found = [path for path in root.rglob("*.parquet") if not any(p.startswith("_") for p in path.parts)]
    return sorted(path.name.replace("0" * 16, "") for path in found)


def seqs(root: Path) -> list[int]:
    """Return the sequences that an engine reads."""
    found = [path for path in root.rglob("*.parquet") if not any(p.startswith("_") for p in path.parts)]
    return sorted(seq for path in found for seq in pq.ParquetFile(path).read().column("seq").to_pylist())


Run = Callable[..., int]


class Main:
    """Runs `pyjs-pipeline` with the Spark session that all tests share."""

    def __init__(self, command: Callable[..., tuple[int, str, str]]) -> None:
        self._command = command
        self.out = self.err = ""

    def __call__(self, argv: list[str]) -> int:
        code, self.out, self.err = self._command(*argv)
        return code


@pytest.fixture
def main(command: Callable[..., tuple[int, str, str]]) -> Main:
    """Run a command and return its exit code; its output is in `out` and `err`."""
    return Main(command)


@pytest.fixture
def run(spark: SparkSession) -> Run:
    """Compact everything; return the number of new files."""

    def compacted(root: Path, rows_per_file: int = 100) -> int:
        groups = compact.plan(str(root), ["S"], rows_per_file)
        compact.clean(str(root), ["S"])
        return len(compact.compact(spark, str(root), groups))

    return compacted


# -- small files ----------------------------------------------------------------------------------------------------


def test_files_in_a_row_become_one(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 6), (6, 11), (11, 13))

    assert run(tmp_path) == 1
    assert names(tmp_path) == ["seq=001-012.parquet"]
    assert seqs(tmp_path) == list(range(1, 13))
    assert run(tmp_path) == 0
    (only,) = tmp_path.rglob("seq=*.parquet")
    assert pq.ParquetFile(only).read().column("data").to_pylist() == [b"%d" % seq for seq in range(1, 13)]


def test_ranges_end_at_multiples_at_midnight_and_at_gaps(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 4), (4, 11), (11, 13), (13, 21), (25, 28), (28, 29))
    write(tmp_path, (29, 30), (30, 31), day="date=2026-11-21")

    assert run(tmp_path, 10) == 4
    assert names(tmp_path) == [
        "seq=001-010.parquet",
        "seq=011-020.parquet",
        "seq=025-028.parquet",
        "seq=029-030.parquet",
    ]
    assert seqs(tmp_path) == [*range(1, 21), *range(25, 31)]


def test_what_is_alone_or_too_large_stays_as_it_is(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 16), (16, 21), (21, 41))
    before = {path: path.stat().st_ino for path in tmp_path.rglob("seq=*")}

    assert run(tmp_path, 10) == 0
    assert {path: path.stat().st_ino for path in tmp_path.rglob("seq=*")} == before


def test_ranges_that_have_no_message_may_lie_between(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 6), (11, 16))
    none = tmp_path / "stream=S" / "_none"
    none.mkdir()
    (none / file_name(6, 11)).touch()
    (none / file_name(16, 21)).touch()

    assert run(tmp_path) == 1
    assert names(tmp_path) == ["seq=001-015.parquet"]


def test_an_archive_goes_on_behind_a_compaction(
    server: ServerProcess,
    filler: Filler,
    tmp_path: Path,
    main: Main,
) -> None:
    filler.create()
    address = f"nats://127.0.0.1:{server.port}"
    options = parse_options({"stream": filler.name, "servers": address})

    def archived() -> int:
        return len(archive_here(tmp_path, options))

    filler.fill(12)
    assert archived() == 3
    assert main(["compact", filler.name, str(tmp_path)]) == 0
    assert main.out == "3 files became 1\n"
    assert archived() == 0
    filler.fill(3)
    assert archived() == 1
    assert main(["compact", filler.name, str(tmp_path)]) == 0
    assert main.out == "2 files became 1\n"
    assert seqs(tmp_path) == list(range(1, 16))
    assert main(["status", filler.name, str(tmp_path), "-s", address, "--json"]) == 0
    (said,) = json.loads(main.out)["streams"]
    assert (said["files"], said["next"], said["lag"], said["lost"]) == (1, 16, 0, [])


# Compacts one folder after another, each in its own process that ends at its n-th step.
KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import pyarrow
import pyarrow.parquet as pq
from pyjs_spark.lake import compact

STEPS = ("os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "ctypes.dlopen", "step")

def run(root, at):
    left = [at]
    def count(event, args):
        if event in STEPS or event == "open" and str(args[0]).startswith(root):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
    real = compact.exchange
    def exchange(one, other):
        real(one, other)
        sys.audit("step")
    compact.exchange = exchange
    def merge(spark, files, target):  # by Spark it only writes below _tmp
        pq.write_table(pyarrow.concat_tables([pq.ParquetFile(path).read() for path in files]), target)
    compact.merge = merge
    groups = compact.plan(root, ["S"], 100)
    sys.addaudithook(count)
    compact.compact(None, root, groups)
    os._exit(0)

for at, root in enumerate(sys.argv[2:], 1):
    child = os.fork() or run(root, at)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def merge(spark: object, files: list[Path], target: Path) -> None:
    """Write the rows of some files to one file; with Spark, a hundred of these would take seconds."""
    pq.write_table(pa.concat_tables([pq.ParquetFile(path).read() for path in files]), target)


def test_a_kill_at_any_point_loses_and_doubles_nothing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "merge", merge)
    roots = [tmp_path / f"{at}" for at in range(48)]
    for root in roots:
        write(root, (1, 4), (4, 7), (8, 10), without=(5,))
        write(root, (10, 12), (12, 13), day="date=2026-11-21")
    command = [sys.executable, "-c", KILLED, str(SOURCES), *map(str, roots)]

    codes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    for root in roots:
        assert seqs(root) == [1, 2, 3, 4, 6, 8, 9, 10, 11, 12]
        run(root)
        assert seqs(root) == [1, 2, 3, 4, 6, 8, 9, 10, 11, 12]
        assert names(root) == ["seq=001-006.parquet", "seq=008-009.parquet", "seq=010-012.parquet"]
        assert not list((root / "stream=S" / "_tmp").iterdir())
    assert codes.count("9") > 20  # killed between any two steps
    assert codes[-1] == "0"  # and after the last one


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.sets(st.integers(0, 29)), st.integers(1, 40))
def test_what_is_planned_covers_the_same_and_crosses_nothing(
    sizes: list[int], gone: set[int], rows_per_file: int
) -> None:
    there, at = [], 1
    for index, size in enumerate(sizes):
        if index not in gone:
            there.append((at, at + size, f"{at}"))
        at += size

    for group in compact._runs(there, [], rows_per_file):
        assert len(group) > 1
        assert all(one[1] == other[0] for one, other in pairwise(group))
        assert (group[0][0] - 1) // rows_per_file == (group[-1][1] - 2) // rows_per_file


def test_a_damaged_file_is_told_and_nothing_changes(tmp_path: Path, main: Main) -> None:
    write(tmp_path, (1, 6), (6, 11))
    bad = tmp_path / "stream=S" / DAY / file_name(6, 11)
    bad.write_bytes(b"PAR1 and no more")

    assert main(["compact", "S", str(tmp_path)]) == 1
    assert "remove it, and the next run of the archive writes it again" in main.err
    assert names(tmp_path) == ["seq=001-005.parquet", "seq=006-010.parquet"]


def test_a_file_with_other_rows_than_its_name_says_is_told(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 6), (6, 11))
    folder = tmp_path / "stream=S" / DAY
    os.replace(folder / file_name(1, 6), folder / file_name(11, 16))

    with pytest.raises(SparkError, match="sequences 1 to 5 pass what its name says"):
        run(tmp_path)


def test_files_with_other_columns_are_told(tmp_path: Path, run: Run) -> None:
    write(tmp_path, (1, 6), (6, 11))
    pq.write_table(pa.table({"seq": [6]}), tmp_path / "stream=S" / DAY / file_name(6, 11))

    with pytest.raises(SparkError, match="its columns are not those of"):
        run(tmp_path)


def test_a_file_system_that_cannot_exchange_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    with pytest.raises(FileNotFoundError):
        compact.exchange(tmp_path / "a", tmp_path / "none")
    with pytest.raises(OptionError, match="this file system cannot exchange folders"):
        compact.exchange(Path("/sys/kernel"), Path("/sys/class"))


@pytest.mark.parametrize("table", ["_delta_log", "metadata"])
def test_tables_of_other_formats_are_left_alone(tmp_path: Path, table: str, run: Run) -> None:
    write(tmp_path, (1, 6), (6, 11))
    (tmp_path / "stream=S" / table).mkdir()

    with pytest.raises(OptionError, match=f"this is a table with a {table}; compact it with its own tools"):
        run(tmp_path)


def test_what_is_no_archive_is_refused(tmp_path: Path, main: Main) -> None:
    write(tmp_path, (1, 6))
    (tmp_path / "stream=T").mkdir()

    for argv, said in (
        (["S", str(tmp_path / "none")], "there is no such folder; name that of an archive"),
        (["T", str(tmp_path)], "it has no _archive.json"),
        (["U*", str(tmp_path)], "the archive has no stream U*"),
        (["S", "s3://bucket/lake"], "only local folders can be compacted"),
        (
            ["S", str(tmp_path), "--rows-per-file", "0"],
            "rows_per_file=0 is not allowed; allowed: a whole number",
        ),
        (["S"], "compact needs target (folder of the archive, or of snapshots)"),
        (["S", str(tmp_path), "-o", "stream=T"], "option stream: the stream is named beside"),
    ):
        assert main(["compact", *argv]) == 2
        assert said in main.err
    with pytest.raises(StreamMissing):
        compact.folders(str(tmp_path), ["X"])


def test_streams_are_named_as_in_an_archive(tmp_path: Path) -> None:
    for name in ("A%C3%A4", "A1", "B"):
        (tmp_path / f"stream={name}").mkdir()
        (tmp_path / f"stream={name}" / "_archive.json").touch()

    found = [path.name for path in compact.folders(str(tmp_path), ["A*", "B"])]

    assert found == ["stream=A%C3%A4", "stream=A1", "stream=B"]
    assert [path.name for path in compact.folders(str(tmp_path), ["Aä"])] == ["stream=A%C3%A4"]


def test_a_file_says_what_to_compact(tmp_path: Path, main: Main) -> None:
    write(tmp_path / "lake", (1, 6), (6, 11))
    file = tmp_path / "compact.toml"
    file.write_text(
        f'[pipeline]\nkind = "compact"\nstream = "S"\ntarget = "{tmp_path}/lake"\nrows_per_file = 1000\n'
    )

    assert main(["validate", "-c", str(file)]) == 0
    assert main.out == f"valid: compact of S to {tmp_path}/lake; no server was asked\n"
    assert main(["explain", "-c", str(file)]) == 0
    assert main.out.endswith("2 files would become 1\n")
    assert main(["run", "-c", str(file), "--json"]) == 0
    assert json.loads(main.out)["merged"] == 2
    assert main(["status", "-c", str(file)]) == 2
    file.write_text('[pipeline]\nkind = "compact"\nstream = "S"\ntaget = "x"\n')
    assert main(["run", "-c", str(file)]) == 2
    assert "key taget is unknown; did you mean target?" in main.err


# -- snapshots ------------------------------------------------------------------------------------------------------

Snap = Callable[..., list[dict[str, object]]]


@pytest.fixture
def snap(server: ServerProcess, filler: Filler, tmp_path: Path, main: Main) -> Snap:
    """Make a snapshot of the test's stream; return its rows."""

    def run(*more: str) -> list[dict[str, object]]:
        address = f"nats://127.0.0.1:{server.port}"
        assert main(["compact", "--latest", filler.name, str(tmp_path), "-s", address, "--json", *more]) == 0
        (said,) = json.loads(main.out)["snapshots"]
        found = pq.read_table(said["path"], partitioning=None)
        assert found.num_rows == said["rows"]
        meta = json.loads(Path(said["path"]).with_name("_latest.json").read_text())
        assert (meta["stream"], meta["last_seq"]) == (filler.name, said["last_seq"])
        return found.to_pylist()

    return run


def test_a_snapshot_has_the_last_message_of_each_subject(snap: Snap, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(7, headers=b"NATS/1.0\r\nA: 1\r\n\r\n")

    rows = snap()
    filler.fill(1)
    again = snap()

    subject = filler.subject.decode()
    assert [(row["subject"], row["seq"], row["data"]) for row in rows] == [
        (f"{subject}.2", 5, b"5"),
        (f"{subject}.0", 6, b"6"),
        (f"{subject}.1", 7, b"7"),
    ]
    assert rows[0]["headers"] == [("A", ["1"])]
    assert [row["seq"] for row in again] == [5, 6, 8]
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["latest.parquet"]
    assert filler.consumers() == []


def test_a_snapshot_takes_filters_and_leaves_headers_out(snap: Snap, filler: Filler) -> None:
    filler.create()
    filler.fill(7)

    rows = snap("-o", f"subjects={filler.subject.decode()}.1", "-o", "includeHeaders=false")

    assert [(row["seq"], "headers" in row) for row in rows] == [(7, False)]


def test_a_snapshot_beside_an_archive_is_refused(
    server: ServerProcess,
    filler: Filler,
    tmp_path: Path,
    main: Main,
) -> None:
    filler.create()
    folder = tmp_path / f"stream={filler.name}"
    folder.mkdir()
    (folder / "_archive.json").touch()
    told = ["compact", filler.name, str(tmp_path), "--latest", "-s", f"nats://127.0.0.1:{server.port}"]

    assert main(told) == 2
    assert "give snapshots a folder of their own" in main.err
    filler.api(f"STREAM.DELETE.{filler.name}")
    assert main(told) == 2
    assert "there is no such stream" in main.err
    assert main([*told[:-1], "nats://127.0.0.1:1"]) == 4
