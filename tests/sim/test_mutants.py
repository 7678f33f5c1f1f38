"""Servers with a flaw are found out: the checkers see."""

from __future__ import annotations

import pytest
from tests.sim.checkers import Violation
from tests.sim.mutants import MUTANTS

SEEDS_MAX = 12


def found_out(name: str) -> bool:
    """Tell whether one of the first seeds objects to a mutant."""
    for seed in range(SEEDS_MAX):
        try:
            MUTANTS[name](seed).run()
        except Violation:
            return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_flaw_is_found_out(name: str) -> None:
    assert found_out(name)
