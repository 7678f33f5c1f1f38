"""All tests of a file run on one worker, which makes the fixtures of the module once; long tests are distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.style.tree import ROOT
from tests.support.schedule import group_of

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


def test_two_workers_make_a_fixture_of_a_module_once(tmp_path: Path) -> None:
    # given
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_sharing.py").write_text(SHARING)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    # when
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    # then
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/conformance/test_tls.py::test_a[x::y]", "tests/conformance/test_tls.py"),
        (
            "tests/conformance/test_scenarios.py::test_a[core]",
            "tests/conformance/test_scenarios.py::test_a[core]",
        ),
        ("tests/system/test_kill.py::test_a", "tests/system/test_kill.py::test_a"),
        ("tests/system/test_cluster_consumers.py::test_a", "tests/system/test_cluster_consumers.py"),
    ],
)
def test_a_test_is_in_the_group_of_its_file_unless_it_takes_long(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group
