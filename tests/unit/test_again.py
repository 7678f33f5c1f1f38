"""A failed test with processes is run again and is named; other tests are not run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.style.tree import ROOT

CONFTEST = """
from tests.support import again, groups


def pytest_configure(config):
    groups.register(config)


def pytest_runtest_protocol(item, nextitem):
    if again.has_second_run(item.nodeid):
        again.run(item, nextitem)
        return True
"""
RACY = """
import pathlib
import pytest


@pytest.fixture(scope="module")
def run():
    with open("runs", "a") as file:
        file.write("x")
    return len(pathlib.Path("runs").read_text())


def test_first(run):
    pass


def test_it(run):
    assert run PASSES
"""


@pytest.mark.parametrize(
    ("folder", "passes", "said", "runs"),
    [
        ("system", "== 2", "2 passed", "xx"),
        ("system", "== 1", "2 passed", "x"),
        ("system", "== 3", "1 failed, 1 passed", "xx"),
        ("sim", "== 2", "1 failed, 1 passed", "x"),
    ],
)
def test_a_failing_test_with_processes_runs_once_more_in_fresh_fixtures(
    tmp_path: Path, folder: str, passes: str, said: str, runs: str
) -> None:
    place = tmp_path / "tests" / folder
    place.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (place / "test_racy.py").write_text(RACY.replace("PASSES", passes))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "--timeout", "60", "tests"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert said in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "runs").read_text() == runs
    told = done.stdout.partition("played again")[2]
    assert (f"tests/{folder}/test_racy.py::test_it: " in told) == (runs == "xx")
    assert (f"assert 1 {passes}" in told) == (runs == "xx")
