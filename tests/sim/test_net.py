"""A short run of the cluster simulation, and proof that it detects flaws."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.sim.net import matches, play

from pyjs.cluster.cluster import Cluster
from pyjs.cluster.interest import Interest, Key
from pyjs.cluster.route import Route

SEEDS = int(os.environ.get("PYJS_NET_SEEDS", "40"))


@pytest.mark.parametrize("part", range(4))
def test_no_interest_is_lost_and_nothing_comes_twice(part: int) -> None:
    failed = {seed: text for seed in range(part, SEEDS, 4) if (text := play(seed))}
    assert failed == {}


def found_by_some_seed(seeds: int = 30) -> str:
    return next((text for seed in range(seeds) if (text := play(seed))), "")


def test_a_server_that_forgets_to_tell_of_a_removed_subscription_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = Interest.take_changes

    def only_new(self: Interest) -> list[Key]:
        return [key for key in take(self) if self.weight(key)]

    monkeypatch.setattr(Interest, "take_changes", only_new)
    assert "a group got 0 instead of one" in found_by_some_seed()


def test_a_new_route_that_is_told_half_of_the_interest_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Cluster, route: Route, interest: Interest) -> Iterator[None]:
        for key in list(interest.counts)[::2]:
            route.send_interest(interest.account, *key, interest.weight(key))
        yield

    monkeypatch.setattr(Cluster, "_account_steps", half)
    assert found_by_some_seed()


def test_a_server_that_does_not_connect_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyjs.cluster.mesh.Mesh.route_lost", lambda self, server_id: None)
    assert "not whole" in found_by_some_seed()


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a", "a", True),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        ("*.b", "a.b", True),
        ("*", "a.b", False),
        (">", "a", True),
    ],
)
def test_the_judge_matches_as_the_protocol_says(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected
