"""Archives as Delta and Iceberg tables: each message once, also after kills; read by the formats' own libraries."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, required
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.support.archived import archive_here, archive_until, here
from spark.tests.support.iceberg_rest import RestCatalog
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()
if not required("spark"):
    pytest.importorskip("deltalake", reason="deltalake is not installed (package extra lake)")
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (package extra lake)")

import deltalake  # only some environments have it
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from spark.tests.support.forked import forked

from pyjs_spark.errors import DataLoss, OptionError, SparkError, SparkMissing
from pyjs_spark.lake import lakes
from pyjs_spark.lake.archive import TableFile, Written, folder_name, parts_folder
from pyjs_spark.lake.lakes import Lake, Task
from pyjs_spark.lake.tables.table import Table, check_installed
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.reading import Options, parse_options
from pyjs_spark.read.ranges import ReadRange


class Archive:
    """The archive of the test's stream, written without Spark, and read with a library of its format."""

    def __init__(self, lake: Lake, port: int, stream: str) -> None:
        self.lake = lake
        self.stream = stream
        self._port = port

    def options(self, **more: str) -> Options:
        """Return the options of a run."""
        return parse_options({"stream": self.stream, "servers": f"nats://127.0.0.1:{self._port}", **more})

    def plan(self, **more: str) -> list[ReadRange]:
        """Plan a run with files of five sequences."""
        return lakes.plan(self.lake, self.options(**more), 5)

    def run(self, **more: str) -> list[Written]:
        """Run the archive; each part has two files."""
        return archive_here(self.lake, self.options(**more))

    def table(self, stream: str = "") -> pa.Table:
        """Return the rows."""
        name = stream or self.stream
        if self.lake.format == "delta":
            return deltalake.DeltaTable(f"{self.lake.root}/{folder_name(name)}").to_pyarrow_table()
        return iceberg_table(self.lake, name).scan().to_arrow()

    def seqs(self) -> list[int]:
        """Return all sequences, sorted."""
        return sorted(self.table().column("seq").to_pylist())

    def next(self) -> int:
        """Return the sequence at which the next run begins."""
        (holding,) = lakes.look(self.lake, self.options())
        return holding.next


def _where(archive: Archive) -> tuple[ConnectSettings, str, str]:
    return archive.options().connect, archive.lake.format, archive.lake.root


def catalog_of(lake: Lake):  # type: ignore[no-untyped-def]
    own = {"type": "sql", "uri": f"sqlite:///{lake.root}/catalog.db", "warehouse": lake.root}
    return load_catalog("pyjs", **(dict(lake.catalog) or own))


def iceberg_table(lake: Lake, stream: str):  # type: ignore[no-untyped-def]
    return catalog_of(lake).load_table(("jetstream", stream))


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """A REST catalog for all tests; each uses its own table names."""
    made = RestCatalog(tmp_path_factory.mktemp("rest") / "catalog")
    yield made
    made.stop()


REST = pytest.param(
    "iceberg-rest",
    marks=[
        pytest.mark.skipif(not IS_MATRIX, reason="a JVM, and jars from Maven: make spark-matrix runs it"),
        pytest.mark.xdist_group("rest"),
    ],
)


@pytest.fixture(params=["delta", "iceberg", REST])
def archive(request: pytest.FixtureRequest, server: ServerProcess, filler: Filler, tmp_path: Path) -> Archive:
    """The archive of the test's stream in each format; for Iceberg, with each catalog."""
    kind, _, has_rest = request.param.partition("-")
    catalog = request.getfixturevalue("rest").settings if has_rest else {}
    return Archive(Lake(str(tmp_path / "lake"), kind, catalog), server.port, filler.name)


# -- a run, and the next one ----------------------------------------------------------------------------------------


def test_every_message_is_in_the_table_once(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(7, headers=b"NATS/1.0\r\nKind: a\r\nKind: b\r\n\r\n")
    filler.fill(5)

    first, again = archive.run(), archive.run()

    table = archive.table().sort_by("seq")
    assert ([file.rows for file in first], again) == ([5, 5, 2], [])
    assert table.column("seq").to_pylist() == list(range(1, 13))
    assert table.column("data").to_pylist() == [b"%d" % n for n in (*range(1, 8), *range(1, 6))]
    assert table.column("headers").to_pylist() == [[("Kind", ["a", "b"])]] * 7 + [None] * 5
    assert set(table.column("ts").to_pylist()[0].tzinfo.tzname(None)) == set("UTC")
    assert [us * 1000 for us in table.column("ts").cast("int64").to_pylist()] == [
        ns // 1000 * 1000 for ns in table.column("ts_ns").to_pylist()
    ]


def test_a_run_goes_on_behind_the_last_one(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    archive.run()
    filler.fill(9)

    assert [(file.low, file.high) for file in archive.run()] == [(13, 16), (16, 21), (21, 22)]
    assert archive.seqs() == list(range(1, 22))
    assert archive.next() == 22


def test_files_lie_in_a_folder_for_each_day(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(3)

    (file,) = archive.run()

    assert Path(file.path).parent.name == f"date={datetime.now(UTC):%Y-%m-%d}"
    assert Path(file.path).is_file()


def test_the_library_prunes_by_sequence_and_by_day(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    archive.run()

    if archive.lake.format == "delta":
        table = deltalake.DeltaTable(f"{archive.lake.root}/{archive.stream}")
        files = table.get_add_actions(flatten=True)
        bounds = zip(files["min.seq"].to_pylist(), files["max.seq"].to_pylist(), strict=True)
        assert sorted(bounds) == [(1, 5), (6, 10), (11, 12)]
        assert table.metadata().partition_columns == ["date"]
        assert table.to_pyarrow_table(filters=[("seq", ">", 10)]).num_rows == 2
    else:
        found = iceberg_table(archive.lake, archive.stream)
        assert len(list(found.scan(row_filter="seq > 10").plan_files())) == 1
        assert [field.name for field in found.spec().fields] == ["date"]


def test_several_streams_have_a_table_each(archive: Archive, filler: Filler, server: ServerProcess) -> None:
    other = Filler(server.port, f"{filler.name}X")
    other.raw.close()
    other.raw = filler.raw  # two connections would receive each other's acknowledgements
    for each in (filler, other):
        each.create()
        each.fill(6)
    archive.stream = f"{filler.name}*"

    first, again = archive.run(), archive.run()

    other.api(f"STREAM.DELETE.{other.name}")
    assert [(file.stream, file.rows) for file in first] == [
        (name, rows) for name in (filler.name, other.name) for rows in (5, 1)
    ]
    assert again == []
    for name in (filler.name, other.name):
        assert sorted(archive.table(name).column("seq").to_pylist()) == [1, 2, 3, 4, 5, 6]


def test_ranges_without_a_message_are_not_read_again(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    filler.delete(*range(1, 11))

    assert [(file.low, file.rows) for file in archive.run()] == [(11, 2)]
    filler.fill(20)
    filler.delete(*range(13, 33))
    assert archive.run() == []
    assert archive.next() == 33
    assert archive.plan() == []


@pytest.mark.parametrize("headers", ["raw", "false"])
def test_headers_may_be_raw_or_left_out(archive: Archive, filler: Filler, headers: str) -> None:
    filler.create()
    filler.fill(2, headers=b"NATS/1.0\r\nA: \xff\r\n\r\n")

    archive.run(includeHeaders=headers)

    names = archive.table().column_names
    assert ("headers" in names) == (headers == "raw")
    if headers == "raw":
        assert archive.table().column("headers").to_pylist() == [b"NATS/1.0\r\nA: \xff\r\n\r\n"] * 2


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_name_of_a_stream_may_hold_any_character(
    server: ServerProcess, filler: Filler, tmp_path: Path, kind: str
) -> None:
    filler.name = "Ä~7E%$" + filler.name
    filler.create(subjects=["odd.>"])
    assert b'"seq"' in filler.raw.request(b"odd.1", b"x")
    archive = Archive(Lake(str(tmp_path), kind), server.port, filler.name)

    archive.run()

    assert archive.seqs() == [1]
    assert archive.run() == []
    assert folder_name("A~B%") == "A~7EB~25"


# -- killed at any point --------------------------------------------------------------------------------------------


def test_what_was_written_and_not_committed_is_written_again(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    for what in archive.plan():
        lakes.write_files(*_where(archive), what)
    before = archive.table().num_rows

    archive.run()

    assert before == 0
    assert archive.seqs() == list(range(1, 13))


def test_two_attempts_of_a_task_do_not_write_the_same_file(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(4)
    (what,) = archive.plan()

    def twice(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        lost, kept = (task(each) for each in (part[0], part[0]))
        assert lost[0].path != kept[0].path
        return [kept]

    lakes.write_parts(twice, archive.lake, archive.options(), [what], 2)

    assert archive.seqs() == [1, 2, 3, 4]


def test_each_commit_is_of_one_part(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(30)
    ranges = archive.plan()

    def broken(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        if part[0].low > 11:
            raise KeyboardInterrupt
        return here(task, part)

    with pytest.raises(KeyboardInterrupt):
        lakes.write_parts(broken, archive.lake, archive.options(), ranges, 2)

    assert archive.seqs() == list(range(1, 21))
    archive.run()
    assert archive.seqs() == list(range(1, 31))


NEVER = -1


def start_killed(archive: Archive, port: int, when: int) -> BaseProcess:
    """Return a started run that kills itself before it commits the part that begins at `when`."""
    begun, begins = Pipe(duplex=False)
    running = forked(archive_until, archive.lake, archive.stream, f"nats://127.0.0.1:{port}", when, begins)
    begins.close()
    begun.recv()
    return running


def killed(archive: Archive, port: int, when: int) -> int | None:
    """Return the exit code of an archive process that is killed before the commit of a part."""
    running = start_killed(archive, port, when)
    running.join(60)
    return running.exitcode


def test_a_run_killed_between_write_and_commit_is_made_again(
    archive: Archive, filler: Filler, server: ServerProcess
) -> None:
    filler.create()
    filler.fill(32)

    ends = [killed(archive, server.port, when) for when in (1, 21, NEVER)]

    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert archive.seqs() == list(range(1, 33))


def test_a_run_killed_at_any_moment_is_made_again(
    archive: Archive, filler: Filler, server: ServerProcess
) -> None:
    filler.create()
    filler.fill(60)
    for moment_s in (0.03, 0.1, 0.25):
        running = start_killed(archive, server.port, NEVER)
        time.sleep(moment_s)  # the time of the kill is random; nothing is waited for
        running.kill()
        running.join(60)

    archive.run()

    assert archive.seqs() == list(range(1, 61))
    assert archive.next() == 61


def test_of_two_runs_at_once_the_second_adds_nothing(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    ranges = archive.plan()

    def overtaken(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        found = here(task, part)
        archive.run()
        return found

    with pytest.raises(SparkError, match="another run wrote to it at the same time"):
        lakes.write_parts(overtaken, archive.lake, archive.options(), ranges, 2)
    with pytest.raises(SparkError, match="another run wrote to it at the same time"):
        lakes.write_parts(here, archive.lake, archive.options(), ranges, 2)
    assert archive.seqs() == list(range(1, 13))


def test_a_commit_between_look_and_commit_is_not_built_upon(
    archive: Archive, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both libraries would otherwise add the files on top of the other commit."""
    filler.create()
    filler.fill(12)
    (what, *_) = archive.plan()
    table = lakes.table_of(archive.lake, archive.stream)
    assert isinstance(table, Table)
    ours, rivals = (lakes.write_files(*_where(archive), what) for _ in range(2))
    real, looks = type(table).end_of, []

    def look_and_be_overtaken(self: Table, loaded: object) -> int | None:
        at = real(self, loaded)
        looks.append(at)
        if len(looks) == 1:
            table.append(1, 6, rivals)
        return at

    monkeypatch.setattr(type(table), "end_of", look_and_be_overtaken)
    with pytest.raises(SparkError, match="is at sequence 6"):
        table.append(1, 6, ours)

    assert looks == [1, 1, 6]
    assert archive.seqs() == [1, 2, 3, 4, 5]


def test_files_that_a_killed_run_left_go_after_a_day(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(4)
    archive.run()
    filler.fill(4)
    folder = Path(f"{archive.lake.root}/{parts_folder(archive.lake.format, archive.stream)}")
    old = [file for what in archive.plan() for file in lakes.write_files(*_where(archive), what)]
    for path in folder.rglob("*.parquet"):
        os.utime(path, (1, 1))
    new = [file for what in archive.plan() for file in lakes.write_files(*_where(archive), what)]

    archive.run()

    assert not any((folder / file.path).exists() for file in old)
    assert all((folder / file.path).exists() for file in new)
    assert archive.seqs() == list(range(1, 9))


# -- maintenance ----------------------------------------------------------------------------------------------------


def test_what_a_delta_table_is_compacted_to_keeps_the_progress(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    archive = Archive(Lake(str(tmp_path), "delta"), server.port, filler.name)
    filler.create()
    filler.fill(12)
    archive.run()
    table = deltalake.DeltaTable(f"{tmp_path}/{filler.name}")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    filler.fill(3)

    archive.run()

    assert archive.seqs() == list(range(1, 16))


def test_snapshots_of_iceberg_may_expire_and_be_rolled_back(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    archive = Archive(Lake(str(tmp_path), "iceberg"), server.port, filler.name)
    filler.create()
    filler.fill(10)
    archive.run()
    filler.fill(3)
    archive.run()
    table = iceberg_table(archive.lake, filler.name)
    first = table.snapshots()[0].snapshot_id

    table.manage_snapshots().set_current_snapshot(first).commit()
    rolled_back = archive.next()
    archive.run()
    other = iceberg_table(archive.lake, filler.name)
    other.delete("seq <= 5")  # this snapshot lacks the property of pyjs-spark
    for snapshot in other.snapshots()[:-1]:
        other.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()

    assert rolled_back == 11
    assert archive.next() == 14
    assert archive.run() == []
    assert archive.seqs() == list(range(6, 14))


# -- refusals -------------------------------------------------------------------------------------------------------


def test_a_recreated_stream_is_refused(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    archive.run()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    filler.fill(9)

    with pytest.raises(DataLoss, match="give it another root"):
        archive.run()
    assert archive.seqs() == [1, 2, 3]


def test_what_went_before_it_was_archived_is_told(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    archive.run()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=14)

    with pytest.raises(DataLoss, match="messages 11 to 13 were removed before they were archived"):
        archive.run()
    archive.run(failOnDataLoss="false")
    assert archive.seqs() == [*range(1, 11), *range(14, 21)]


def test_other_options_are_refused(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    archive.run()

    with pytest.raises(OptionError, match="was begun with"):
        archive.run(includeHeaders="raw")


@pytest.mark.parametrize("other", ["parquet", "delta", "iceberg"])
def test_another_format_at_the_same_place_is_refused(archive: Archive, filler: Filler, other: str) -> None:
    filler.create()
    filler.fill(3)
    if other == archive.lake.format:
        ours = archive.lake
        archive.lake = Lake(archive.lake.root, "parquet")
        lakes.plan(archive.lake, archive.options(), 5)
        archive.lake, other = ours, "parquet"
    else:
        lakes.plan(Lake(archive.lake.root, other), archive.options(), 5)

    with pytest.raises(OptionError, match=f"was begun with format={other}"):
        archive.run()


def test_a_table_that_no_archive_began_is_refused(archive: Archive, filler: Filler) -> None:
    filler.create()
    rows = pa.table({"seq": [1]})
    if archive.lake.format == "delta":
        deltalake.write_deltalake(f"{archive.lake.root}/{filler.name}", rows)
    else:
        Path(archive.lake.root).mkdir()
        catalog = catalog_of(archive.lake)
        catalog.create_namespace_if_not_exists("jetstream")
        catalog.create_table(("jetstream", filler.name), rows.schema)

    with pytest.raises(OptionError, match="no archive began this"):
        archive.run()


def test_a_table_that_is_damaged_is_one_line(archive: Archive, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    archive.run()
    for path in Path(archive.lake.root).rglob("*.json"):
        path.write_text("{")

    with pytest.raises((SparkError, OSError)) as caught:
        archive.run()
    assert "\n" not in str(caught.value)
    assert archive.lake.root in str(caught.value)


def test_an_iceberg_table_that_its_catalog_does_not_know_is_refused(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    archive = Archive(Lake(str(tmp_path), "iceberg"), server.port, filler.name)
    filler.create()
    filler.fill(3)
    archive.run()
    (tmp_path / "catalog.db").unlink()

    with pytest.raises(OptionError, match="that the catalog does not know"):
        archive.run()


def test_a_percent_sign_in_the_root_is_refused_for_delta(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="has a % in its name"):
        lakes.table_of(Lake(f"{tmp_path}/a%b", "delta"), "A")


def test_a_catalog_of_its_own_is_named_in_the_file(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)
    elsewhere = f"sqlite:///{tmp_path}/own.db"
    said = {"type": "sql", "uri": elsewhere, "name": "mine", "namespace": "streams"}
    archive = Archive(Lake(str(tmp_path / "lake"), "iceberg", said), server.port, filler.name)

    archive.run()

    table = load_catalog("mine", type="sql", uri=elsewhere).load_table(("streams", filler.name))
    assert table.scan().to_arrow().num_rows == 3
    assert not (tmp_path / "lake" / "catalog.db").exists()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    find: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", find)

    with pytest.raises(SparkMissing, match=r"is not installed; pip install 'pyjs-spark\[lake\]'"):
        check_installed(kind)
