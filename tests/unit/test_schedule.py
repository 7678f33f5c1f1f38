"""All tests of a file run on one worker, which creates the module's fixtures once; long tests are distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.style.tree import ROOT
from tests.support.schedule import group_of, in_order

CONFTEST = """
from tests.support.schedule import FileScheduling


def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log)
"""
SHARING = """
import pytest


@pytest.fixture(scope="module")
def made():
    with open("made", "a") as file:
        file.write("x")


@pytest.mark.parametrize("number", range(6))
def test_it(made, number):
    pass
"""
SCENARIO = "tests/conformance/test_scenarios.py::test_a[core]"


def run_pytest(folder: Path, *arguments: str) -> str:
    """Run the tests in a folder; return the output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_two_workers_make_a_fixture_of_a_module_once(tmp_path: Path) -> None:
    # given
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_sharing.py").write_text(SHARING)
    # when
    output = run_pytest(tmp_path, "-n", "2")
    # then
    assert "6 passed" in output
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/conformance/test_tls.py::test_a[x::y]", "tests/conformance/test_tls.py"),
        (SCENARIO, SCENARIO),
        ("tests/system/test_kill.py::test_a", "tests/system/test_kill.py::test_a"),
        ("tests/system/test_cluster_consumers.py::test_a", "tests/system/test_cluster_consumers.py"),
    ],
)
def test_a_test_is_in_the_group_of_its_file_unless_it_takes_long(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_long_tests_start_first() -> None:
    files = {"tests/unit/test_many.py": 9, "tests/unit/test_few.py": 2, SCENARIO: 1}
    long = {"tests/crash/test_kill.py::test_a": 1, "tests/system/test_kill.py::test_a": 1}
    assert in_order({**files, **long})[:2] == [*long]


def test_tests_that_wait_run_beside_tests_that_compute() -> None:
    computing = {f"tests/unit/test_{n}.py": 30 - n for n in range(20)}
    waiting = {"tests/conformance/test_tls.py": 10, **{f"{SCENARIO}{n}": 1 for n in range(40)}}
    counts = {**computing, **waiting}

    order = in_order(counts)

    assert [group for group in order if group in computing] == [*computing]
    assert [group for group in order if group in waiting] == [*waiting]
    for at in range(len(order)):
        done = [
            sum(kind[group] for group in order[:at] if group in kind) / sum(kind.values())
            for kind in (computing, waiting)
        ]
        assert abs(done[0] - done[1]) <= max(30 / sum(computing.values()), 10 / sum(waiting.values()))


def test_a_worker_gets_long_tests_after_its_first_files(tmp_path: Path) -> None:
    # given
    folder = tmp_path / "tests" / "crash"
    folder.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text("def test_a(): pass\n\ndef test_b(): pass\n")
    (folder / "test_long.py").write_text("def test_long(): pass\n")
    # when
    output = run_pytest(tmp_path, "-vv", "-n", "1")
    # then
    order = [line.split()[-1].partition("::")[0] for line in output.splitlines() if "PASSED" in line]
    assert "tests/crash/test_long.py" in order[:-6]
    assert order[0] == "test_0.py"
