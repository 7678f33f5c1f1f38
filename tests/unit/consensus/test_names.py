"""Numbers of nodes, made from the names of servers."""

from __future__ import annotations

import pytest

from pyjs.consensus import names
from pyjs.consensus.names import number_of, same_number


def test_a_number_is_stable_and_has_31_bits() -> None:
    assert number_of("n1") == 1957692583
    assert all(1 <= number_of(f"server-{at}") < 1 << 31 for at in range(1000))


def test_no_name_has_the_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "xxh64_intdigest", lambda data: 1 << 40)

    assert number_of("n1") == 1


def test_different_numbers_are_no_problem() -> None:
    assert same_number("n1", "n2") == ""


def test_servers_of_one_name_refuse_each_other() -> None:
    assert same_number("n1", "n1") == ('two servers have the name "n1": give each one its own server_name')


def test_names_with_the_same_number_refuse_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "xxh64_intdigest", lambda data: 17)

    assert same_number("n1", "n2") == (
        'the names "n1" and "n2" have the same number 17: change the server_name of one of them'
    )
