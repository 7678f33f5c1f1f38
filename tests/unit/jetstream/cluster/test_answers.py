"""Answers from the metadata, and the servers that are asked for the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.jetstream.cluster.metafixture import A, Meta, stream

from pyjs.jetstream.cluster.answers import ListPlan, list_plan, matching, require_leader
from pyjs.jetstream.errcodes import ApiError


@pytest.mark.parametrize(
    ("account", "subject", "names"),
    [
        (A, "", ["R", "S", "T"]),
        (A, "a.b", ["S"]),
        (A, "a.>", ["S"]),
        (A, "*", ["R", "T"]),
        (A, "x", []),
        ("B", "", ["Q"]),
        ("C", "", []),
    ],
)
def test_streams_are_found_by_subject_in_the_order_of_their_names(
    account: str, subject: str, names: list[str]
) -> None:
    meta = Meta(1)
    for name in ("T", "R"):
        meta.create(name, 1)
    meta.create("S", 1, subjects=("b", "a.*") if subject != "*" else ("a.*",))
    meta.create("Q", 1, account="B")
    assert [each.name for each in matching(meta.state, account, subject)] == names


def test_each_stream_of_a_list_is_reported_by_its_leader() -> None:
    newer = stream("NEWER", (1,), 7)
    newer = replace(newer, stored=replace(newer.stored, offline="unsupported"))
    streams = [
        stream("HERE", (2, 1, 3), 1),
        stream("ALONE", (1,), 2),
        stream("THERE", (2, 3), 3),
        stream("TOO", (2,), 4),
        stream("AWAY", (4,), 5),
        stream("NOBODY", (1, 2, 3), 6),
        newer,
    ]
    plan = list_plan(streams, 1, {1: 1, 3: 2, 6: 0, 7: 1}, {1, 2, 3})
    assert plan == ListPlan(
        ["HERE", "ALONE"], {2: ["THERE", "TOO"]}, ["AWAY", "NOBODY"], {"NEWER": "unsupported"}
    )


def test_without_a_leader_of_the_metadata_requests_are_refused() -> None:
    require_leader(1)
    with pytest.raises(ApiError, match="10008"):
        require_leader(0)
