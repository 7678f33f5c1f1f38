"""The status file of a run, with a clock that the test sets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyjs_spark.cli.main import Terminated
from pyjs_spark.errors import DataLoss
from pyjs_spark.lake.watch import Done, Watch
from pyjs_spark.read.ranges import ReadRange

BEGAN = datetime(2026, 11, 20, 12, 0, 0, 500_000, UTC)
RANGES = [ReadRange("A", 1, 101), ReadRange("A", 101, 151), ReadRange("B", 7, 57)]


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def seconds(self) -> float:
        return self.at_s

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.at_s - 100)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "status.json"


@pytest.fixture
def watch(clock: Clock, file: Path) -> Watch:
    return Watch("archive", file=str(file), clock=clock.seconds, now=clock.now)


def test_the_file_follows_a_run(watch: Watch, clock: Clock, file: Path) -> None:
    with watch:
        watch.plan(RANGES)
        clock.at_s += 2
        watch.done(Done("A", 1, 101, 90, 0))
        running = json.loads(file.read_text())
        clock.at_s += 6
        watch.done(Done("B", 7, 57, 50, 0))
        watch.done(Done("A", 101, 151, 40, 3))
    done = json.loads(file.read_text())

    assert running == {
        "pipeline": "archive",
        "state": "running",
        "started": "2026-11-20T12:00:00.500Z",
        "updated": "2026-11-20T12:00:02.500Z",
        "seconds": 2.0,
        "rows": 90,
        "rows_per_s": 45,
        "batches": {"done": 1, "planned": 3},
        "lag": {"A": 50, "B": 50},
        "losses": [],
        "error": "",
    }
    assert (done["state"], done["rows"], done["rows_per_s"], done["seconds"]) == ("done", 180, 22, 8.0)
    assert (done["batches"], done["lag"]) == ({"done": 3, "planned": 3}, {"A": 0, "B": 0})
    assert done["losses"] == ["stream A: up to 3 messages of 101 to 150 went before they were read"]
    assert [path.name for path in file.parent.iterdir()] == ["status.json"]


def test_a_task_that_was_made_twice_counts_once(watch: Watch, file: Path) -> None:
    with watch:
        watch.plan(RANGES)
        for _ in range(2):
            watch.done(Done("A", 1, 101, 90, 0))

    assert json.loads(file.read_text())["rows"] == 90


def test_the_rate_while_it_runs_is_that_of_the_last_ten_seconds(
    watch: Watch, clock: Clock, file: Path
) -> None:
    with watch:
        watch.plan(RANGES)
        clock.at_s += 100
        watch.done(Done("A", 1, 101, 100, 0))
        clock.at_s += 5
        watch.done(Done("A", 101, 151, 50, 0))
        assert json.loads(file.read_text())["rows_per_s"] == round(150 / 105)
        clock.at_s += 10
        watch.done(Done("B", 7, 57, 50, 0))
        assert json.loads(file.read_text())["rows_per_s"] == round(100 / 15)


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (DataLoss("gone\n  for good"), "failed", "gone for good"),
        (KeyboardInterrupt(), "interrupted", ""),
        (Terminated(), "interrupted", ""),
    ],
)
def test_a_run_that_does_not_end_well_says_so(
    watch: Watch, file: Path, error: BaseException, state: str, said: str
) -> None:
    def run() -> None:
        with watch:
            watch.lost("stream A: messages 1 to 5 were removed before they were archived")
            raise error

    with pytest.raises(type(error)):
        run()

    found = json.loads(file.read_text())
    assert (found["state"], found["error"]) == (state, said)
    assert found["losses"] == ["stream A: messages 1 to 5 were removed before they were archived"]


def test_a_file_that_cannot_be_written_fails_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), Watch("archive", file=str(tmp_path / "none" / "status.json")):
        raise AssertionError("the run began")


def test_a_file_that_cannot_be_written_later_is_told_at_the_end(watch: Watch, file: Path) -> None:
    def run() -> None:
        with watch:
            watch.plan(RANGES)
            file.unlink()
            file.mkdir()
            watch.done(Done("A", 1, 101, 90, 0))
            watch.done(Done("A", 101, 151, 50, 0))

    with pytest.raises(IsADirectoryError):
        run()
