"""The checkers detect servers with a flaw."""

from __future__ import annotations

import pytest
from tests.sim.checkers import Violation
from tests.sim.mutants import MUTANTS

SEEDS_MAX = 12
# first seed to try: few seeds reset a consumer and then read far enough to reveal the flaw
FIRST = {"reset forgotten": 98}


def found_out(name: str) -> bool:
    """Return whether one of the first seeds detects a mutant."""
    first = FIRST.get(name, 0)
    for seed in range(first, first + SEEDS_MAX):
        try:
            MUTANTS[name](seed).run()
        except Violation:
            return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_flaw_is_found_out(name: str) -> None:
    assert found_out(name)
