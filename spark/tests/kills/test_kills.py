"""A short run of kills.py: Spark is killed with SIGKILL while it copies a stream; every message is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip, required
from spark.tests.jvm.conftest import lacking

arrow_or_skip()

from spark.tests.kills import kills  # this module needs pyarrow

MISSING = "" if required("spark") else lacking()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_nothing_is_lost_and_nothing_is_there_twice_after_kills(tmp_path: Path) -> None:
    # make spark-kills tests the other targets and victims, with more kills
    figures = kills.run(("stream",), "ours", 1, tmp_path, victims=("driver",))

    assert figures["kills"] == {"driver": 1}
    for target, found in figures["found"].items():
        wrong = (found["lost"], found["more_than_once"], found["strange"])
        assert wrong == (0, 0, 0), (target, found)
