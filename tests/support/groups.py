"""The report at the end of a test run: seconds of each group of tests, and tests that were repeated."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

PLAYED_AGAIN = "played again"  # a property of a report: the scenario or test that did not pass the first time
PLAYED_AGAIN_MAX = 6  # about one scenario in a hundred, and some other tests with processes
PLUGIN = "groups"


def register(config: pytest.Config) -> None:
    """Add these sections to the report of `config`'s run; several conftest.py files may call this."""
    if not config.pluginmanager.has_plugin(PLUGIN) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Groups(), PLUGIN)


class Groups:
    """The plugin: seconds and number of tests of each group (a folder), summed over all workers.

    If PYJS_SECONDS names a file, each group adds a line to it: seconds and name. `.ci/run` collects the seconds of
    several runs in it.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._played_again: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a report to its group."""
        group = group_of(report.nodeid)
        self._seconds[group] = self._seconds.get(group, 0.0) + report.duration
        if report.when == "call":
            self._counts[group] += 1
            again = (str(value) for name, value in report.user_properties if name == PLAYED_AGAIN)
            self._played_again.extend(again)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which too many tests were repeated: one of the servers is unstable."""
        if len(self._played_again) > PLAYED_AGAIN_MAX:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both sections, the slowest group first, and add the groups to the file."""
        if self._played_again:
            count = f"{len(self._played_again)} tests, {PLAYED_AGAIN_MAX} are allowed"
            terminalreporter.section(f"played again: {count}")
            for name in sorted(self._played_again):
                terminalreporter.write_line(name)
        terminalreporter.section(f"seconds per group, python {sys.version.split()[0]}")
        dearest = sorted(self._seconds.items(), key=lambda item: -item[1])
        for group, total in dearest:
            terminalreporter.write_line(f"{group:18} {total:8.1f} s {self._counts[group]:6} tests")
        kept = os.environ.get("PYJS_SECONDS")
        if kept:
            with Path(kept).open("a", encoding="utf-8") as file:
                file.writelines(f"{total:.1f} {group}\n" for group, total in dearest)


def group_of(nodeid: str) -> str:
    """Return the group of a test: `unit` of tests/unit/..., `spark/jvm` of spark/tests/jvm/..., `raft` of raft/tests,
    else `spark`.
    """
    parts = nodeid.partition("::")[0].split("/")
    if parts[0] == "raft":
        return "raft"
    if parts[0] == "spark":
        return "/".join(["spark", *parts[2:-1]])
    return parts[1]
