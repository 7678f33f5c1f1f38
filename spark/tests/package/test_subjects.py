"""Matching of subjects and filters."""

from __future__ import annotations

import pytest

from pyjs_spark.subjects import is_match


@pytest.mark.parametrize(
    ("subject", "wanted", "matches"),
    [
        (b"a.b", b"a.b", True),
        (b"a.b", b"a.*", True),
        (b"a.b", b">", True),
        (b"a.b", b"a.>", True),
        (b"a", b"a.>", False),
        (b"a.b.c", b"a.*", False),
        (b"a", b"a.b", False),
        (b"a.c", b"a.b", False),
    ],
)
def test_filters_match_as_on_the_server(subject: bytes, wanted: bytes, matches: bool) -> None:
    assert is_match(subject.split(b"."), wanted.split(b".")) is matches
