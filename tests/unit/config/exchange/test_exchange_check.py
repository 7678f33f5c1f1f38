"""Permissions to import, and cycles of imports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyjs.config.exchange.check import Check, authorized
from pyjs.config.exchange.declared import Activation, Exchange, StreamExport, StreamImport

GIVEN = Activation("B", "A", issued_at=10, expires=100)
PRIVATE = StreamExport("s.>", activation_required=True)


def may(export: StreamExport, now_s: int = 50, **activation: Any) -> bool:
    wanted = StreamImport("A", "s.x", activation=replace(GIVEN, **activation))
    return authorized(Exchange((export,), signers=frozenset({"K"})), export, "B", wanted, now_s)


@pytest.mark.parametrize(
    ("activation", "allowed"),
    [
        ({}, True),
        ({"importer": "C"}, False),
        ({"issuer": "X"}, False),
        ({"issuer": "K"}, False),
        ({"issuer": "K", "issuer_account": "A"}, True),
        ({"issuer": "X", "issuer_account": "A"}, False),
        ({"issuer": "K", "issuer_account": "C"}, False),
        ({"expires": 50}, False),
        ({"not_before": 51}, False),
        ({"expires": 0}, True),
    ],
)
def test_an_activation_is_for_one_importer_by_one_exporter(activation: dict[str, Any], allowed: bool) -> None:
    assert may(PRIVATE, **activation) is allowed


@pytest.mark.parametrize(
    ("revocations", "allowed"),
    [((("B", 9),), True), ((("B", 10),), False), ((("*", 11),), False), ((("C", 11),), True)],
)
def test_a_revocation_voids_activations_issued_up_to_then(
    revocations: tuple[tuple[str, int], ...], allowed: bool
) -> None:
    assert may(replace(PRIVATE, revocations=revocations)) is allowed


def test_a_private_export_needs_an_activation() -> None:
    assert not authorized(Exchange((PRIVATE,)), PRIVATE, "B", StreamImport("A", "s.x"), 0)


def test_one_account_is_checked_again_among_the_others() -> None:
    export = StreamExport("s.>")
    declared = {
        "A": Exchange((export,), (StreamImport("B", "s.>"),)),
        "B": Exchange((export,), (StreamImport("A", "s.>"),)),
    }
    check = Check(declared)
    assert [problem.account for problem in check.run()] == ["B"]
    declared["A"] = Exchange((export,))
    check.forget("A")
    assert check.accept("B", StreamImport("A", "s.>")) == ""
