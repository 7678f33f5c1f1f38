"""Distribution of tests to the workers of pytest-xdist: all tests of a file run on one worker.

So a fixture of a module, most often a pair of servers, is made once and not once per worker. Tests that take long and
share nothing are distributed one by one, after the files. The marks of `--dist loadgroup` are not used: pytest 9.2
ignores the group that pytest-xdist 3.8 adds to the id of a test.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ONE_BY_ONE = (
    "tests/conformance/test_scenarios.py",
    "tests/crash/",
    "tests/fuzz/",
    "tests/history/",
    "tests/lag/",
    "tests/sim/",
    "tests/system/",
)


def group_of(nodeid: str) -> str:
    """Return the name that a test shares with the tests that run on the same worker."""
    return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """The scheduler of pytest-xdist for these groups; larger ones start first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
