"""Distribution of tests to the workers of pytest-xdist: all tests of a file run on one worker.

So a module's fixture, most often a pair of servers, is made once and not once per worker. Tests that take long and
share nothing are distributed individually. They start early, so that no worker still runs one when the others have
finished. After them the conformance tests, which mostly wait for servers, are mixed with the others, which mostly
compute: if all workers ran the former, processors would be idle, and if all ran the latter, there would be too few
processors. The marks of `--dist loadgroup` are not used: pytest 9.2 ignores the group that pytest-xdist 3.8 adds to
the id of a test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from xdist.scheduler import LoadScopeScheduling

LONG = (
    "tests/crash/",
    "tests/fuzz/",
    "tests/history/",
    "tests/lag/",
    "tests/sim/",
    "tests/system/",
)
WAITING = "tests/conformance/"
ONE_BY_ONE = ("tests/conformance/test_scenarios.py", *LONG)
# The tests of these files share servers.
TOGETHER = (
    "tests/system/test_cluster_consumers.py",
    "tests/system/test_cluster_copies.py",
    "tests/system/test_cluster_jetstream.py",
)


def group_of(nodeid: str) -> str:
    """Return the name of the group of a test; all tests of a group run on the same worker."""
    is_alone = nodeid.startswith(ONE_BY_ONE) and not nodeid.startswith(TOGETHER)
    return nodeid if is_alone else nodeid.partition("::")[0]


def in_order(counts: Mapping[str, int]) -> list[str]:
    """Return the groups, given with their numbers of tests: the long tests, then waiting tests mixed with others.

    The mixture is even: at any place the same fraction of the tests of either kind remains. Within a kind the order
    is kept.
    """
    kinds = {group: _kind(group) for group in counts}
    totals: Counter[str] = Counter()
    for group, count in counts.items():
        totals[kinds[group]] += count
    behind: Counter[str] = Counter()
    part: dict[str, float] = {}
    for group, count in counts.items():
        kind = kinds[group]
        part[group] = -1 if kind == "long" else behind[kind] / totals[kind]
        behind[kind] += count
    return sorted(counts, key=part.__getitem__)


def _kind(group: str) -> str:
    return "long" if group.startswith(LONG) else "waits" if group.startswith(WAITING) else "computes"


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """The scheduler of pytest-xdist for these groups; larger groups of each kind start first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def schedule(self) -> None:
        """Assign the first groups, the largest files; then sort the queue."""
        super().schedule()
        for group in in_order({group: len(tests) for group, tests in self.workqueue.items()}):
            self.workqueue.move_to_end(group)
