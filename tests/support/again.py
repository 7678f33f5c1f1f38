"""Failed tests with real processes and sockets are repeated with fresh fixtures; with a real fault they fail again.

On a busy machine a test may observe a process between two steps. The end of the run names each such test, and a run
with more than PLAYED_AGAIN_MAX of them fails, since something is unstable. Tests of pure machines get no second run:
the same input always gives the same result.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from tests.support.groups import PLAYED_AGAIN

FOLDERS = tuple(
    f"tests/{name}"
    for name in (
        "conformance/",
        "crash/",
        "system/",
        "unit/aio/",
        "unit/benchmarks/",
        "unit/config/",
        "unit/server/",
        "unit/test_start.py",
    )
)
REASON_LINES = 12  # last lines of the first failure, with the assertion and the place


def has_second_run(nodeid: str) -> bool:
    """Return whether a test uses processes or sockets; scenarios repeat themselves, so they are excluded.

    `make schemas` plays all scenarios in one test, for minutes, and names each fault: it is not repeated.
    """
    file = Path(nodeid.partition("::")[0]).as_posix()
    if os.environ.get("PYJS_REQUIRE") == "schemas":
        return False
    return file.startswith(FOLDERS) and file != "tests/conformance/test_scenarios.py"


def start_timer_again(item: pytest.Item) -> None:
    """Give the second run its own timeout: pytest-timeout would use one for both runs, or none."""
    # Imported late: the environment for Spark does not have it.
    from pytest_timeout import _get_item_settings  # type: ignore[import-untyped]

    settings = _get_item_settings(item)
    item.ihook.pytest_timeout_cancel_timer(item=item)
    if settings.timeout:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def reason_of(failed: pytest.TestReport) -> str:
    """Return the end of a failure's text in one line: the fault may occur only once in many runs."""
    lines = failed.longreprtext.strip().splitlines()
    return " | ".join(line.strip() for line in lines[-REASON_LINES:])


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test, and again if it fails; only the last run is reported."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = next((report for report in reports if report.failed), None)
    if failed is not None:
        item.session._setupstate.teardown_exact(None)  # shared fixtures too, since they may be the cause
        item._initrequest()  # type: ignore[attr-defined]
        start_timer_again(item)
        item.user_properties[:] = [(PLAYED_AGAIN, f"{item.nodeid}: {reason_of(failed)}")]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
