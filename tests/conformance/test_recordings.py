"""A recording is only used for the script that it was made from, and every scenario plays live at some commit."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.harness.process import REPOSITORY
from tests.conformance.harness.recordings import (
    LIVE_EVERY,
    RECORDED,
    plays_live,
    read_recording,
    write_recording,
)
from tests.conformance.harness.script import load_all, parse
from tests.support.groups import PLAYED_AGAIN_MAX

TEXT = "# A title.\nconnect a\na> PING\nsync a\n"
MASKED = {"connections": {"a": [{"op": "PONG"}]}, "http": []}


def test_a_recording_is_found_for_its_script(tmp_path: Path) -> None:
    # given
    script = parse(TEXT, "core/ping")
    # when
    write_recording(script, MASKED, tmp_path)
    # then
    assert read_recording(script, tmp_path) == MASKED


def test_a_changed_script_and_a_new_one_have_no_recording(tmp_path: Path) -> None:
    # given
    write_recording(parse(TEXT, "core/ping"), MASKED, tmp_path)
    # when
    changed, new = parse(TEXT + "sync a\n", "core/ping"), parse(TEXT, "core/pong")
    # then
    assert read_recording(changed, tmp_path) is None
    assert read_recording(new, tmp_path) is None


def test_a_commit_lets_about_a_tenth_of_the_scenarios_play_live() -> None:
    # given
    scripts = load_all()
    # when
    chosen = [sum(plays_live(script, f"commit {number}") for script in scripts) for number in range(50)]
    # then
    assert 0.8 < sum(chosen) / 50 / (len(scripts) / LIVE_EVERY) < 1.2
    assert min(chosen) > 0


def test_the_turn_of_every_scenario_comes() -> None:
    # given
    scripts = load_all()
    turns: Counter[str] = Counter()
    # when
    for number in range(300):
        turns.update(script.name for script in scripts if plays_live(script, f"commit {number}"))
    # then
    assert set(turns) == {script.name for script in scripts}


def test_every_kept_recording_belongs_to_a_scenario() -> None:
    # given
    names = {script.name for script in load_all()}
    # when
    kept = {path.relative_to(RECORDED).with_suffix("").as_posix() for path in RECORDED.glob("*/*.json")}
    # then
    assert kept <= names


@pytest.mark.parametrize(("again", "status"), [(PLAYED_AGAIN_MAX, 0), (PLAYED_AGAIN_MAX + 1, 1)])
def test_a_run_with_too_many_scenarios_played_again_fails_and_names_them(
    tmp_path: Path, again: int, status: int
) -> None:
    # given
    (tmp_path / "conftest.py").write_text(
        "from tests.support import groups\npytest_configure = groups.register\n"
    )
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_scenarios.py").write_text(
        "import pytest\nfrom tests.support.groups import PLAYED_AGAIN\n"
        f"@pytest.mark.parametrize('number', range({again}))\n"
        "def test_one(record_property, number):\n    record_property(PLAYED_AGAIN, f'core/ping{number}')\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"]
    # when
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    # then
    assert run.returncode == status, run.stdout
    assert f"played again: {again} tests" in run.stdout
    assert f"core/ping{again - 1}" in run.stdout
