"""The command `pyjs-pipeline` without servers: errors, which have one line, and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjs_spark import errors
from pyjs_spark.cli import main as cli
from pyjs_spark.cli.config import from_file
from pyjs_spark.cli.main import CODES, main
from pyjs_spark.cli.own_spark import worker_error
from pyjs_spark.errors import DataLoss, ServerUnreachable, SparkError, SparkMissing
from pyjs_spark.lake.archive import Holding, planned, progress
from pyjs_spark.lake.tables import table
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange

WHOLE = """
[pipeline]
kind = "archive"
stream = ["ORDERS", "BILLS_*"]
target = "lake"
rows_per_file = 1000
master = "local[2]"

[options]
servers = ["nats://a:4222", "nats://b:4222"]
failOnDataLoss = false
fetchExpires = 2.5
tls.ca = "ca.pem"

[spark]
"spark.driver.memory" = "2g"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.toml"


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return the one line that the command prints before it ends with 2."""
    assert main(list(argv)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line.removeprefix("pyjs-pipeline: ")


# -- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            [],
            "name a command: archive, replay, compact, quality, dlq-report, run, validate, "
            "explain, status, submit-args",
        ),
        (["archiv"], "command archiv is unknown; did you mean archive?"),
        (["xyz"], "command xyz is unknown; there are archive"),
        (
            ["validate"],
            "archive needs stream (name, comma list, or pattern with *); name it, or give -c FILE",
        ),
        (["validate", "A"], "archive needs target (folder or URI of the archive); name it, or give -c FILE"),
        (["validate", "A", "lake", "-c", "x"], "give a stream and a target, or -c x; not both"),
        (["archive", "A"], "archive needs target (folder or URI of the archive)"),
        (["run"], "the following arguments are required: -c/--config"),
        (["validate", "A", "lake", "--jsn"], "unrecognized arguments: --jsn"),
        (["validate", "A", "lake", "-o", "subjects"], "--option subjects: write it as name=value"),
        (["validate", "A", "lake", "-o", "subjcts=a"], "option subjcts is unknown; did you mean subjects?"),
        (
            ["validate", "A", "lake", "-o", "stream=B"],
            "option stream: the stream is named beside the other keys",
        ),
        (
            ["validate", "A", "lake", "-s", "x", "-o", "servers=y"],
            "--server and option servers have the same",
        ),
        (["validate", "A", "lake", "-o", "endingTimestamp=5"], "option endingTimestamp is not allowed in an"),
        (["validate", "A", "lake", "-o", "subjects=a", "-o", "Subjects=b"], "option Subjects is given twice"),
        (
            ["validate", "-c", "x.toml", "--format", "delta"],
            "--format cannot be given with -c; set it in x.toml",
        ),
        (
            ["status", "-c", "x.toml", "--rows-per-file", "5"],
            "--rows-per-file cannot be given with -c; set it in x.toml",
        ),
        (
            ["explain", "-c", "x.toml", "--master", "local"],
            "--master cannot be given with -c; set it in x.toml",
        ),
        (
            ["submit-args", "-c", "x.toml", "--format", "delta"],
            "--format cannot be given with -c; set it in x.toml",
        ),
        (
            ["compact", "A", "lake", "-s", "x"],
            "option servers is not allowed in compact: files are merged without",
        ),
        (
            ["compact", "A", "lake", "-o", "subjects=a"],
            "option subjects is not allowed in compact: files are",
        ),
        (
            ["compact", "A", "lake", "--latest", "--rows-per-file", "5"],
            "--rows-per-file is for merging files",
        ),
        (["validate", "A", " "], "archive needs target"),
        (["validate", "A.B", "lake"], "option stream=A.B is not allowed"),
        (["archive", "A", "lake", "--plot", "run.svg"], "unrecognized arguments: --plot run.svg"),
        (["explain", "A", "lake", "--status-file", "s"], "unrecognized arguments: --status-file s"),
        (
            ["validate", "A", "lake", "--format", "detla"],
            "format=detla is not allowed; allowed: parquet, delta or iceberg",
        ),
        (
            ["validate", "A", "s3://lake", "--format", "iceberg"],
            "format=iceberg: the target s3://lake is no fol",
        ),
        (["validate", "A", "lake", "--rows-per-file", "0"], "rows_per_file=0 is not allowed"),
        (
            ["validate", "A", "lake", "--rows-per-file", "many"],
            "rows_per_file=many is not allowed; allowed: a whole number",
        ),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert refused(capsys, *argv).startswith(said)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])

    said = capsys.readouterr().out
    assert left.value.code == 0
    assert all(name in said for name in cli.COMMANDS)


def test_a_pipeline_that_is_right_is_called_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "ORDERS", "lake", "--option", "subjects=orders.new"]) == 0
    assert capsys.readouterr().out == "valid: archive of ORDERS to lake; no server was asked\n"


def test_a_format_is_named_with_what_is_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.PACKAGES, "delta", "json")  # whatever is installed on this machine
    assert main(["validate", "ORDERS", "lake", "--format", "delta"]) == 0
    assert capsys.readouterr().out == "valid: archive of ORDERS to lake as delta; no server was asked\n"


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_library_that_is_not_installed_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setitem(table.PACKAGES, kind, "pyjs_no_such_package")
    for command in ("explain", "status", "validate"):
        said = refused(capsys, command, "A", str(tmp_path / "lake"), "--format", kind)
        assert said == (
            f"format={kind}: the package pyjs_no_such_package is not installed; pip install 'pyjs-spark[lake]'"
        )


def test_an_archive_without_spark_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # has no Java, whatever else is installed

    said = refused(capsys, "archive", "A", str(tmp_path / "lake"))

    assert "pip install pyjs-spark" in said or "install Java 17 or newer" in said


# -- configuration files --------------------------------------------------------------------------------------------


def test_a_file_says_everything_about_a_pipeline(file: Path) -> None:
    file.write_text(WHOLE)

    found = from_file(str(file), {"FETCHEXPIRES": "3s"})

    assert (found.kind.name, found["target"], found["rows_per_file"]) == ("archive", "lake", 1000)
    assert (found.master, found.spark) == ("local[2]", {"spark.driver.memory": "2g"})
    assert found.options.streams == ("ORDERS", "BILLS_*")
    assert found.options.connect.servers == ("nats://a:4222", "nats://b:4222")
    assert found.options.connect.tls_ca == "ca.pem"
    assert not found.options.fail_on_data_loss
    assert (found["format"], found.catalog) == ("parquet", {})
    assert found.options.fetch_expires_s == 3.0  # the command line overrides the file


def test_a_file_names_the_format_and_its_catalog(file: Path) -> None:
    pytest.importorskip("pyiceberg")
    more = 'format = "iceberg"\nrows_per_file = 1000\n[catalog]\ntype = "rest"\nrest.signing-region = "x"'
    file.write_text(
        WHOLE.replace("rows_per_file = 1000", "")
        .replace('target = "lake"', 'target = "s3://lake"')
        .replace('master = "local[2]"', 'master = "local[2]"\n' + more)
    )

    found = from_file(str(file), {})

    assert (found.made.root, found.made.format) == ("s3://lake", "iceberg")
    assert found.made.catalog == {"type": "rest", "rest.signing-region": "x"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[options]", "[option]", "section option is unknown; did you mean options?"),
        ("target", "taget", "key taget is unknown; did you mean target?"),
        ('target = "lake"', "", "archive needs target (folder or URI of the archive)"),
        ('kind = "archive"', "", "key kind is missing in [pipeline]"),
        ('"archive"', '"archve"', "kind archve is unknown; did you mean archive?"),
        ("= 1000", "= 1000.5", "rows_per_file=1000.5 is not allowed; allowed: a whole number"),
        ("= 1000", "= true", "rows_per_file=true is not allowed; allowed: a whole number"),
        ("failOnDataLoss", "failOnDataLos", "did you mean failOnDataLoss?"),
        ("= 2.5", "= [1, 2]", "fetchExpires=[1, 2] is not allowed"),
        (
            '"lake"',
            '"lake"\nformat = "icberg"',
            "format=icberg is not allowed; allowed: parquet, delta or iceberg",
        ),
        ("[options]", '[catalog]\ntype = "rest"\n[options]', "section catalog is for format=iceberg"),
        ('"2g"', "1979-05-27", "spark.driver.memory=1979-05-27 is not allowed"),
        ("= 2.5", "=", "this is no TOML: Invalid value (at line 12, column 15)"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(
    capsys: pytest.CaptureFixture[str], file: Path, old: str, new: str, said: str
) -> None:
    file.write_text(WHOLE.replace(old, new, 1))

    line = refused(capsys, "validate", "-c", str(file))

    assert line.startswith(f"{file}: ")
    assert said in line


def test_a_section_must_be_a_table(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("pipeline = 1\n")

    assert "pipeline is no section; write [pipeline]" in refused(capsys, "run", "-c", str(file))


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert refused(capsys, "run", "-c", str(file)) == f"{file}: cannot be read: No such file or directory"


# -- errors and exit codes ------------------------------------------------------------------------------------------


def test_every_code_is_of_an_error_that_there_is() -> None:
    assert all(issubclass(getattr(errors, name), SparkError) for name in CODES)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "An error\n  File x\npyjs_spark.errors.DataLoss: stream A: gone\n\tat org",
            DataLoss,
            "stream A: gone",
        ),
        ("x.\npyjs_spark.errors.ServerUnreachable: no server\n", ServerUnreachable, "no server"),
        ("pyjs_spark.errors.ApiError: bad (code 400, err_code 1)", SparkError, "bad (code 400, err_code 1)"),
        ("pyjs_spark.errors.Newer: what", SparkError, "Spark failed: pyjs_spark.errors.Newer: what"),
        ("Job aborted.\n\n at a\n at b", SparkError, "Spark failed: Job aborted. at a"),
        (
            "An error of calls.\n: org.x.PythonException: Traceback (most recent call last):\n  File x\n    y()\n"
            "ModuleNotFoundError: No module named 'pyarrow'\n\n\tat org",
            SparkError,
            "Spark failed: a worker ended with ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nDuring this:\n\n"
            "Traceback (most recent call last):\n  File y\nValueError: 2\n",
            SparkError,
            "Spark failed: a worker ended with ValueError: 2",
        ),
        ("", SparkError, "Spark failed: without a word"),
    ],
)
def test_the_error_of_a_worker_is_told_as_it_was(text: str, kind: type[SparkError], said: str) -> None:
    found = worker_error(text)

    assert (type(found), str(found)) == (kind, said)


def test_what_is_not_installed_ends_with_2() -> None:
    assert CODES[SparkMissing.__name__] == 2


# -- what status and explain say ------------------------------------------------------------------------------------

ORDERS = StreamState("ORDERS", "2026-01-31T12:00:00Z", 11, 30, 15, 1500)


def held(*covered: tuple[int, int], created: str = ORDERS.created) -> Holding:
    return Holding(ORDERS, covered, {"created": created} if covered else None, len(covered))


def test_what_was_never_archived_is_all_lag() -> None:
    found = progress(held())

    assert (found.files, found.next, found.lag, found.lost) == (0, 11, 20, ())


def test_gaps_in_the_stream_still_are_lag_and_those_before_it_are_lost() -> None:
    found = progress(held((3, 6), (8, 15), (20, 25)))

    assert (found.next, found.lag, found.lost) == (25, 5 + 6, ((6, 8),))


def test_what_left_the_stream_behind_the_archive_is_lost() -> None:
    assert progress(held((3, 6))).lost == ((6, 11),)


def test_what_consumers_removed_is_not_lost() -> None:
    queue = StreamState("JOBS", ORDERS.created, 11, 30, 15, 1500, is_consumed=True)

    assert progress(Holding(queue, ((3, 6),), {"created": ORDERS.created}, 1)).lost == ()


def test_the_archive_of_another_stream_is_told_and_not_counted() -> None:
    found = progress(held((3, 6), created="2025-01-01T00:00:00Z"))

    assert (found.other, found.lag, found.lost) == ("2025-01-01T00:00:00Z", 0, ())


def test_rows_and_bytes_of_a_plan_are_by_the_mean_of_the_stream() -> None:
    ranges = [ReadRange("ORDERS", 11, 21), ReadRange("ORDERS", 21, 22)]

    found = [(each.low, each.high, each.rows, each.size) for each in planned([held()], ranges)]

    assert found == [(11, 21, 8, 750), (21, 22, 1, 75)]
