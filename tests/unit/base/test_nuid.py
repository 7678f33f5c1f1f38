from __future__ import annotations

from pyjs.base.nuid import DIGITS, nuid, short_hash, token
from pyjs.base.rng import SeededRng


def test_a_nuid_has_22_digits_and_no_other() -> None:
    rng = SeededRng(1)
    names = {nuid(rng) for _ in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {22}
    assert set("".join(names)) <= set(DIGITS)


def test_the_same_chance_gives_the_same_token() -> None:
    assert token(SeededRng(7), 8) == token(SeededRng(7), 8) != token(SeededRng(8), 8)


def test_a_text_is_shortened_to_the_same_eight_digits() -> None:
    assert short_hash("$G") == "szMpdrwD"
    assert len({short_hash(str(number)) for number in range(1000)}) == 1000
