"""Random histories end equal on both servers; `make history` plays thousands. The judge finds known differences."""

from __future__ import annotations

import dataclasses

import pytest
from tests.conformance.harness.both import needs_peer
from tests.history.judging import Difference, Pair, first_difference, narrowed, run, told
from tests.history.making import History, Kind, Publish, make

SAMPLE = range(20_000, 20_020)  # other seeds than those of `make history`


@needs_peer
@pytest.mark.timeout(240)
def test_random_histories_end_equal_on_both_servers() -> None:
    problems: list[str] = []
    assert run(SAMPLE, problems.append) == [], "\n".join(problems)


class Judge(Pair):
    """A pair that reports a difference at one operation."""

    def __init__(self, wrong: Publish) -> None:
        self.wrong = wrong

    def difference(self, history: History) -> Difference | None:
        at = {each: at for at, each in enumerate(history.operations)}
        return Difference(at[self.wrong], 1, 2) if self.wrong in at else None


def test_a_history_that_differs_is_made_short() -> None:
    # given
    history = next(each for seed in range(100) if (each := make(seed)).kind is Kind.PLAIN)
    wrong = Publish("a", "x", (("Nats-Msg-Id", "only here"),))
    operations = (*history.operations[:5], wrong, *history.operations[5:])
    history = dataclasses.replace(history, config={}, operations=operations)
    # when
    shortest, found = Judge(wrong).shortest(history, Difference(5, 1, 2))
    # then
    assert shortest.operations == (wrong,)
    assert "only here" in told(shortest, found)


class Late(Pair):
    """A pair that reports a difference the first time only, as if one server had been late."""

    def __init__(self) -> None:
        self.plays = 0

    def difference(self, history: History) -> Difference | None:
        self.plays += 1
        return Difference(0, 1, 2) if self.plays == 1 else None


def test_a_difference_that_does_not_come_again_is_none() -> None:
    pair = Late()
    assert pair.steady(make(1)) is None
    assert pair.plays == 2


def test_a_seed_is_the_same_history_every_time() -> None:
    assert make(7) == make(7)
    assert {make(seed).kind for seed in range(60)} == set(Kind)


def test_the_first_different_answer_is_found_and_narrowed() -> None:
    found = first_difference([{}, {"seq": 1, "stream": "S"}], [{}, {"seq": 2, "stream": "S"}])
    assert found == Difference(0, {"seq": 1}, {"seq": 2})
    assert first_difference([{}, 1], [{}, 1]) is None
    assert narrowed([1, {"a": 1}], [1, {"a": 2}]) == ({"a": 1}, {"a": 2})
