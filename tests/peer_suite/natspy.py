"""Runs the tests of nats.py's package `nats` (in its checkout, nats/tests) with pytest and a JUnit report."""

from __future__ import annotations

import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.peer_suite.results import FAILED, PASSED, SKIPPED, Results
from tests.peer_suite.shim import Place

NAME = "nats.py"
SUITE_SECONDS = 3600.0
TEST_SECONDS = 120


def run(place: Place, checkout: Path, chosen: str) -> Results:
    """Run the suite, then repeat every failure alone; a test counts as failed if both runs fail."""
    results = _run(place, checkout, ["nats/tests", *(["-k", chosen] if chosen else [])])
    again = [name for name, outcome in results.items() if outcome == FAILED]
    for name in again:
        results.update(_run(place, checkout, [name]))
    return results


def _run(place: Place, checkout: Path, arguments: list[str]) -> Results:
    with tempfile.TemporaryDirectory(prefix="peer-suite-") as directory:
        report = Path(directory) / "junit.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        command += ["-o", "asyncio_mode=auto", "-o", "junit_family=xunit1", f"--timeout={TEST_SECONDS}"]
        command += [f"--junitxml={report}", *arguments]
        paths = f"{checkout}/nats/src:{checkout}/nats"
        # The suite itself reads this version; without it, some of its tests are skipped.
        _, output = place.run(command, checkout, SUITE_SECONDS, PYTHONPATH=paths, NATS_SERVER_VERSION="main")
        if not report.exists():
            raise SystemExit(f"nats.py's tests did not run; the end of their output:\n{output[-2000:]}")
        return outcomes(report)


def outcomes(report: Path) -> Results:
    """Return the outcome of every test of a JUnit report, by the name under which pytest runs the test."""
    results: Results = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("file", "")
        module = file.removesuffix(".py").replace("/", ".")
        classes = case.get("classname", "").removeprefix(module).strip(".").split(".")
        name = "::".join([file, *filter(None, classes), case.get("name", "")])
        kinds = {child.tag for child in case}
        results[name] = FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
    return results
