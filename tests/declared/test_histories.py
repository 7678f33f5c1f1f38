"""Random edits of a file end equal to the file, as the plan said; `make declared-histories` plays a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.declared.making import Way, make
from tests.declared.playing import run

SAMPLE = range(20_000, 20_002)  # not the seeds of `make declared-histories`


@pytest.mark.timeout(240)
def test_random_edits_end_equal_to_the_file(tmp_path: Path) -> None:
    problems: list[str] = []
    assert run(SAMPLE, tmp_path, problems.append, steps=4) == [], "\n".join(problems)


def test_a_seed_is_the_same_history_every_time() -> None:
    assert make(7) == make(7)
    assert {step.way for seed in range(20) for step in make(seed)} == set(Way)
