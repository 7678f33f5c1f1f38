"""Distribution of tests to the workers of pytest-xdist: all tests of a file run on one worker.

So a fixture of a module, most often a pair of servers, is made once and not once per worker. Tests that take long and
share nothing are distributed one by one. They start early, so that no worker still runs one when the others have
nothing left; the scenarios, which are many and short, come last. The marks of `--dist loadgroup` are not used: pytest
9.2 ignores the group that pytest-xdist 3.8 adds to the id of a test.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling

LONG = (
    "tests/crash/",
    "tests/fuzz/",
    "tests/history/",
    "tests/lag/",
    "tests/sim/",
    "tests/system/",
)
ONE_BY_ONE = ("tests/conformance/test_scenarios.py", *LONG)
# The tests of these files share servers.
TOGETHER = (
    "tests/system/test_cluster_consumers.py",
    "tests/system/test_cluster_copies.py",
    "tests/system/test_cluster_jetstream.py",
)


def group_of(nodeid: str) -> str:
    """Return the name that a test shares with the tests that run on the same worker."""
    is_alone = nodeid.startswith(ONE_BY_ONE) and not nodeid.startswith(TOGETHER)
    return nodeid if is_alone else nodeid.partition("::")[0]


def long_first(groups: Iterable[str]) -> list[str]:
    """Return the groups with the long tests in front, otherwise in their order."""
    return sorted(groups, key=lambda group: not group.startswith(LONG))


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """The scheduler of pytest-xdist for these groups; of the others larger ones start first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def schedule(self) -> None:
        """Assign the first groups, the largest files; then put the long tests in front of the queue."""
        super().schedule()
        for group in long_first(self.workqueue):
            self.workqueue.move_to_end(group)
