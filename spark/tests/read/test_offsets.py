"""Offsets: a checkpoint is read as it was written, and anything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs_spark.errors import SparkError
from pyjs_spark.read import offsets
from pyjs_spark.read.offsets import Cut, StreamOffset

ANY = st.dictionaries(
    st.text(min_size=1), st.builds(StreamOffset, st.integers(1, 2**63 - 1), st.text()), max_size=5
)


def test_an_offset_looks_like_this() -> None:
    written = offsets.to_json({"ORDERS": StreamOffset(300001, "2026-11-20T19:19:45Z")})

    assert json.dumps(written) == (
        '{"v": 1, "streams": {"ORDERS": {"next": 300001, "created": "2026-11-20T19:19:45Z"}}}'
    )


def test_an_offset_keeps_how_its_ranges_are_cut() -> None:
    cut = Cut(8, 10_000, 500_000)
    written = offsets.to_json({"ORDERS": StreamOffset(3, "then")}, cut)

    assert json.dumps(written) == (
        '{"v": 1, "cut": {"partitions": 8, "rows_min": 10000, "rows_max": 500000}, '
        '"streams": {"ORDERS": {"next": 3, "created": "then"}}}'
    )
    assert offsets.cut_in(written) == cut
    assert offsets.cut_in(offsets.to_json({})) is None


@pytest.mark.parametrize(
    "cut",
    [
        5,
        {},
        {"partitions": 0, "rows_min": 0, "rows_max": 1},
        {"partitions": "8", "rows_min": 0, "rows_max": 1},
    ],
)
def test_a_cut_of_something_else_is_refused(cut: object) -> None:
    with pytest.raises(SparkError, match="none of this data source"):
        offsets.cut_in({"v": 1, "cut": cut, "streams": {}})


@given(ANY)
def test_an_offset_survives_the_checkpoint(at: dict[str, StreamOffset]) -> None:
    assert offsets.from_json(json.loads(json.dumps(offsets.to_json(at)))) == at


@given(ANY)
def test_equal_offsets_are_equal_as_text(at: dict[str, StreamOffset]) -> None:
    other_order = dict(reversed(at.items()))

    assert json.dumps(offsets.to_json(at)) == json.dumps(offsets.to_json(other_order))


def test_an_offset_of_a_newer_version_is_refused() -> None:
    with pytest.raises(SparkError, match="version 2, this version of pyjs_spark reads 1"):
        offsets.from_json({"v": 2, "streams": {}})


@pytest.mark.parametrize(
    "streams",
    [
        None,
        [],
        {"S": 5},
        {"S": {"next": 0, "created": ""}},
        {"S": {"next": "1", "created": ""}},
        {"S": {"next": 1}},
    ],
)
def test_an_offset_of_something_else_is_refused(streams: object) -> None:
    with pytest.raises(SparkError, match="none of this data source"):
        offsets.from_json({"v": 1, "streams": streams})
