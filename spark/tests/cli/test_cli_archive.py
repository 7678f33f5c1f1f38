"""`pyjs-pipeline` with both servers, without a JVM: its plans, and its reports about an archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

from pyjs_spark.cli.main import main  # this module needs pyarrow to read the archive
from pyjs_spark.options.reading import parse_options

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(server: ServerProcess, filler: Filler, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command about the test's stream; return its exit code and its output."""

    def run(command: str, *argv: str) -> tuple[int, str, str]:
        servers = f"nats://127.0.0.1:{server.port}"
        lake = str(tmp_path / "lake")
        code = main([command, filler.name, lake, "-s", servers, "--rows-per-file", "5", *argv])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def write(server: ServerProcess, filler: Filler, tmp_path: Path) -> Callable[[], None]:
    """Archive the test's stream with the functions that workers run."""

    def run() -> None:
        options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
        archive_here(tmp_path / "lake", options)

    return run


def test_explain_shows_the_ranges_and_touches_nothing(say: Say, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)

    code, out, _ = say("explain")

    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [line[:4] for line in lines[1:4]] == [
        [filler.name, "1", "5", "5"],
        [filler.name, "6", "10", "5"],
        [filler.name, "11", "12", "2"],
    ]
    assert lines[4][:6] == ["3", "ranges,", "about", "12", "rows", "and"]
    assert not (tmp_path / "lake").exists()


def test_explain_in_json_has_every_range(say: Say, filler: Filler, write: Callable[[], None]) -> None:
    filler.create()
    filler.fill(7)
    write()
    filler.fill(5)

    said = json.loads(say("explain", "--json")[1])

    assert [(each["low"], each["high"]) for each in said["ranges"]] == [(8, 11), (11, 13)]
    assert (said["files"], said["rows"]) == (2, 5)


def test_status_follows_an_archive(say: Say, filler: Filler, write: Callable[[], None]) -> None:
    filler.create()
    filler.fill(12)
    before = say("status")
    write()
    filler.fill(3)

    after = json.loads(say("status", "--json")[1])["streams"]

    assert before[0] == 0
    assert before[1].splitlines()[1].split() == [filler.name, "0", "1", "12", "12"]
    assert [(each["files"], each["next"], each["lag"], each["lost"]) for each in after] == [(3, 13, 3, [])]


def test_what_was_lost_ends_with_3(say: Say, filler: Filler, write: Callable[[], None]) -> None:
    filler.create()
    filler.fill(10)
    write()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=14)

    for command in ("status", "explain"):
        code, _, error = say(command)
        assert (code, error.count("\n")) == (3, 1)
        assert "messages 11 to 13 were removed before they were archived" in error
    code, out, _ = say("status", "-o", "failOnDataLoss=false")
    assert code == 0
    assert "messages 11 to 13 were removed" in out
    assert say("explain", "-o", "failOnDataLoss=false")[0] == 0


def test_a_recreated_stream_ends_with_3(say: Say, filler: Filler, write: Callable[[], None]) -> None:
    filler.create()
    filler.fill(3)
    write()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()

    assert "the archive is of another one" in say("status")[2]
    assert say("explain")[0] == 3


def test_a_stream_that_lost_its_end_ends_with_3(
    say: Say, filler: Filler, write: Callable[[], None], tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    write()
    filler.api(f"STREAM.DELETE.{filler.name}")
    created = filler.create()  # as a stream restored from a backup
    filler.fill(5)
    (path,) = tmp_path.rglob("_archive.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "created": created}))

    for command in ("status", "explain"):
        code, _, error = say(command)
        assert (code, error.count("\n")) == (3, 1)
        assert "ends at sequence 5, and the archive has messages up to 12" in error


def test_a_stream_that_is_not_there_ends_with_2(say: Say) -> None:
    code, _, error = say("explain")

    assert code == 2
    assert "there is no such stream" in error


def test_a_folder_that_no_file_system_has_ends_with_2(
    server: ServerProcess, filler: Filler, capsys: pytest.CaptureFixture[str]
) -> None:
    filler.create()
    address = f"nats://127.0.0.1:{server.port}"

    assert main(["explain", filler.name, "what://lake", "-s", address]) == 2
    assert "folder what://lake: pyarrow has no file system for it" in capsys.readouterr().err


def test_a_folder_that_is_a_file_ends_with_2(say: Say, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    (tmp_path / "lake").write_text("a file")

    code, _, error = say("status")

    assert code == 2
    assert "this is a file; name a folder" in error


def test_an_archive_whose_own_file_is_damaged_ends_with_1(
    say: Say, filler: Filler, write: Callable[[], None], tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)
    write()
    (tmp_path / "lake" / f"stream={filler.name}" / "_archive.json").write_text("{")

    code, _, error = say("status")

    assert (code, error.count("\n")) == (1, 1)
    assert "_archive.json: this says not whose archive it is" in error


def test_a_server_that_is_not_there_ends_with_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in ("explain", "status"):
        assert main([command, "A", str(tmp_path), "--server", "nats://127.0.0.1:1"]) == 4
        assert "127.0.0.1:1: Connection refused" in capsys.readouterr().err
