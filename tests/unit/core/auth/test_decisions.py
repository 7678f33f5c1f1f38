"""Decisions about subjects are cached, up to a limit."""

from __future__ import annotations

from pyjs.core.auth.decisions import Decisions


def test_a_decision_is_remembered_until_another_is_put() -> None:
    decisions = Decisions()
    decisions.put(b"a", True)
    decisions.put(b"b", False)
    assert [decisions.get(subject) for subject in (b"a", b"b", b"c", b"")] == [True, False, None, None]
    # when
    decisions.put(b"a", False)
    # then
    assert decisions.get(b"a") is False
    assert len(decisions) == 2


def test_a_full_table_starts_again() -> None:
    decisions = Decisions()
    sizes = []
    for number in range(5_000):
        decisions.put(b"s.%d" % number, number % 2 == 0)
        assert decisions.get(b"s.%d" % number) is (number % 2 == 0)
        sizes.append(len(decisions))
    assert max(sizes) == 1024
    assert sizes[1024] == 1


def test_a_long_subject_is_not_remembered() -> None:
    decisions = Decisions()
    decisions.put(b"x" * 256, True)
    decisions.put(b"y" * 257, True)
    assert decisions.get(b"x" * 256) is True
    assert decisions.get(b"y" * 257) is None
