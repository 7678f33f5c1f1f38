"""Short runs of pipeline_kills.py: commands are killed and restarted; every message is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip, required
from spark.tests.jvm.conftest import IS_MATRIX, lacking

arrow_or_skip()

from spark.tests.kills import pipeline_kills  # this module needs pyarrow

MISSING = "" if required("spark") else lacking()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not IS_MATRIX, reason="most of a minute each: make spark-matrix runs it")
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(("what", "server"), [("replay", "peer")])
def test_a_pipeline_that_was_killed_does_the_rest_and_nothing_twice(
    what: str, server: str, tmp_path: Path
) -> None:
    figures = pipeline_kills.run(
        what, server, 1, tmp_path
    )  # its main() tests the other servers, with more kills

    assert len(figures["killed_at"]) == 1
    assert not any(figures["wrong"].values()), figures
