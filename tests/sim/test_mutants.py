"""Servers with a flaw are found out: the checkers see."""

from __future__ import annotations

import pytest
from tests.sim.checkers import Violation
from tests.sim.mutants import MUTANTS

SEEDS_MAX = 12
FIRST = {"reset forgotten": 98}  # only some seeds reset a consumer and read on as far as that shows


def found_out(name: str) -> bool:
    """Tell whether one of the first seeds objects to a mutant."""
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
