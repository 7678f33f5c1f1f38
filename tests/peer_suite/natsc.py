"""Runs the tests of the C client (testsuite of a built checkout), one process for each name in natsc.txt."""

from __future__ import annotations

import re
from pathlib import Path

from tests.peer_suite.results import FAILED, PASSED, SKIPPED, Results
from tests.peer_suite.shim import Place

NAME = "nats.c"
NAMES = Path(__file__).with_name("natsc.txt")
TEST_SECONDS = 180.0
_SKIPPED = re.compile(r"skipp(ing|ed) ", re.IGNORECASE)


def run(place: Place, checkout: Path, chosen: str) -> Results:
    """Run every name that contains `chosen`; a test has failed if it fails twice."""
    program = checkout / "build" / "bin" / "testsuite"
    if not program.exists():
        raise SystemExit(f"{program} is missing: build the checkout with cmake and make, tests included")
    version = place.run(["nats-server", "-v"], checkout, 60.0)[1].strip()
    results: Results = {}
    for name in NAMES.read_text().split():
        if chosen.lower() in name.lower():
            outcome = _run(place, program, name, version)
            results[name] = _run(place, program, name, version) if outcome == FAILED else outcome
    return results


def _run(place: Place, program: Path, name: str, version: str) -> str:
    more = {"NATS_TEST_SERVER_EXE": "nats-server", "NATS_TEST_SERVER_VERSION": version}
    directory = program.parents[2] / "test"
    _, output = place.run([str(program), name], directory, TEST_SECONDS, **more)
    if "ALL PASSED" not in output:
        return FAILED
    return SKIPPED if _SKIPPED.search(output) else PASSED
