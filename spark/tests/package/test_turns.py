"""The tests with a JVM alternate between the two servers, and each runs with at least one of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark.tests.jvm.conftest import not_their_turn


def collected(name: str, **params: str) -> Any:
    """Return an object with the used attributes of a collected test."""
    shown = "-".join(params.values())
    found = SimpleNamespace(path=Path("m.py"), nodeid=f"m.py::{name}[{shown}]" if params else f"m.py::{name}")
    if params:
        found.callspec = SimpleNamespace(params=params)
    return found


def test_servers_take_turns_and_each_value_of_a_parameter_has_one() -> None:
    both: list[tuple[str, dict[str, str]]] = [("a", {}), ("b", {"mode": "x"}), ("b", {"mode": "y"})]
    items = [collected(name, server=kind, **more) for kind in ("ours", "peer") for name, more in both]

    left = {item.nodeid for item in not_their_turn(items)}

    assert {item.nodeid for item in items} - left == {"m.py::a[ours]", "m.py::b[peer-x]", "m.py::b[ours-y]"}


def test_what_runs_on_one_server_alone_or_needs_none_is_never_left_out() -> None:
    items = [collected("a"), collected("b", server="ours"), collected("c"), collected("d", mode="x")]

    assert not_their_turn(items) == []
