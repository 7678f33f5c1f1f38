"""The subject of an import in the importing account."""

from __future__ import annotations

import pytest

from pyjs.subjects.local_subject import numbered, of_service_import, of_stream_import, pattern_of
from pyjs.subjects.transform import TransformError


@pytest.mark.parametrize(
    ("subject", "to", "pattern", "there", "here"),
    [
        ("a.*.*", "b.$2.$1", "b.*.*", b"a.x.y", b"b.y.x"),
        ("a.*.>", "p.a.*.>", "p.a.*.>", b"a.x.y.z", b"p.a.x.y.z"),
        ("a.*", "b.{{wildcard(1)}}.c", "b.*.c", b"a.x", b"b.x.c"),
        ("a.>", "b.>", "b.>", b"a.x", b"b.x"),
    ],
)
def test_a_renamed_stream_is_reversible(
    subject: str, to: str, pattern: str, there: bytes, here: bytes
) -> None:
    local = of_stream_import(subject, to)
    assert local.transform is not None
    assert local.backward is not None
    assert local.pattern == pattern
    assert local.transform.apply(there) == here
    assert local.backward.apply(here) == there


def test_a_service_is_renamed_in_the_opposite_way() -> None:
    local = of_service_import("a.*.*", "b.$2.$1")
    assert local.transform is not None
    assert local.pattern == "b.*.*"
    assert local.transform.apply(b"b.y.x") == b"a.x.y"


def test_literal_and_unchanged_subjects_need_no_transform() -> None:
    assert of_stream_import("a", "b").transform is None
    assert of_stream_import("a.*", "a.*").same
    assert of_service_import("a", "b").transform is None
    assert of_service_import("a", "a").same
    assert of_service_import("a.*", "a.*").same


@pytest.mark.parametrize(
    ("subject", "to", "text"),
    [
        ("a.*.*", "b.$1", "not using all of the token wildcard(s) in b.$1"),
        ("a.*", "b.$1.{{partition(3,1)}}", "the only mapping function allowed for import transforms is"),
        ("a.*", "b.$2", "wildcard index out of range"),
        ("a", "b.*", "invalid subject"),
    ],
)
def test_what_cannot_be_reversed_is_refused(subject: str, to: str, text: str) -> None:
    with pytest.raises(TransformError) as refused:
        of_stream_import(subject, to)
    assert text in str(refused.value)


def test_stars_and_numbers_replace_each_other() -> None:
    assert numbered("a.*.b.*.>") == "a.$1.b.$2.>"
    assert pattern_of("a.$2.{{wildcard(1)}}.$x") == ("a.*.*.$x", ["$2", "{{wildcard(1)}}"])
