"""Subject transforms: the results of mapping functions, and errors with their texts."""

from __future__ import annotations

import pytest

from pyjs.base.rng import SeededRng
from pyjs.subjects import transform
from pyjs.subjects.transform import (
    SubjectTransform,
    TransformError,
    check_mapping,
    check_transform,
    fnv1a,
    open_transform,
)


def made(source: str, destination: str, subject: bytes) -> bytes | None:
    return SubjectTransform(source, destination, SeededRng(1)).apply(subject)


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("a.*.*", "x.$2.$1", b"a.b.c", b"x.c.b"),
        ("a.*.*", "x.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", b"a.b.c", b"x.c.b"),
        ("a.*.>", "x.$1.>", b"a.b.c.d", b"x.b.c.d"),
        ("", "pre.>", b"a.b", b"pre.a.b"),
        (">", ">", b"a..b", b"a..b"),
        ("a.b", "x", b"a.b", b"x"),
        ("a.*", "x.$0.$-1.$+1.$a.$", b"a.b", b"x.a.a.b.$a.$"),
        ("a.*", "x.{wildcard(1)}.{{}}", b"a.b", b"x.{wildcard(1)}.{{}}"),
    ],
)
def test_a_destination_takes_tokens_of_the_subject(
    source: str, destination: str, subject: bytes, expected: bytes
) -> None:
    assert made(source, destination, subject) == expected


@pytest.mark.parametrize("subject", [b"a", b"a.b.c", b"b.b", b"a.*", b"a.", b""])
def test_a_subject_that_the_source_does_not_match_is_told(subject: bytes) -> None:
    assert made("a.*", "x.$1", subject) is None


@pytest.mark.parametrize(
    ("function", "token", "expected"),
    [
        ("split(1,-)", b"a-b-c", b"a.b.c"),
        ("split(1,-)", b"-a--b-", b"a.b"),
        ("split(1,-)", b"--a", b".a"),
        ("split(1,)", "aé".encode(), "a.é".encode()),
        ("splitFromLeft(1,2)", b"abcde", b"ab.cde"),
        ("splitFromRight(1,2)", b"abcde", b"abc.de"),
        ("splitfromleft(1,5)", b"abcde", b"abcde"),
        ("sliceFromLeft(1,2)", b"abcde", b"ab.cd.e"),
        ("sliceFromRight(1,2)", b"abcde", b"a.bc.de"),
        ("SliceFromRight(1,2)", b"abcd", b"ab.cd"),
        ("left(1,2)", b"abcde", b"ab"),
        ("Right(1,2)", b"abcde", b"de"),
        ("right(1,0)", b"abcde", b"abcde"),
        ("left(1,-2)", b"abcde", b"abcde"),
    ],
)
def test_a_function_takes_a_token_apart(function: str, token: bytes, expected: bytes) -> None:
    assert made("s.*", f"x.{{{{{function}}}}}", b"s." + token) == b"x." + expected


def test_partitions_are_decided_by_named_tokens_or_by_the_whole_subject() -> None:
    assert fnv1a(b"") == 0x811C9DC5
    assert fnv1a(b"foobar") == 0xBF9CF968
    assert made("f8.*.*", "p.{{partition(10,1,2)}}.$1", b"f8.a.b") == b"p.6.a"
    assert made("f9.*", "p.{{partition(1000)}}", b"f9.foo") == b"p.218"
    assert made("f10.a", "p.{{partition(1000)}}.{{partition(7,1)}}", b"f10.a") == b"p.521.0"
    assert made("a.*", "{{partition(0,1)}}.{{partition(-3,1)}}", b"a.a") == b"0.3826002220"


def test_random_numbers_stay_below_the_limit_and_are_drawn_each_time() -> None:
    drawn = SubjectTransform("a", "x.{{random(3)}}.{{random(0)}}", SeededRng(1))

    assert {drawn.apply(b"a") for _ in range(50)} == {b"x.0.0", b"x.1.0", b"x.2.0"}


def test_an_empty_destination_is_no_transform() -> None:
    assert open_transform("a", "", SeededRng(1)) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(transform, "REMEMBERED_MAX", 2)
    doubled = SubjectTransform("*", "$1.$1", SeededRng(1))

    # when, then
    for _ in range(2):
        assert [doubled.apply(b"%d" % n) for n in range(5)] == [b"%d.%d" % (n, n) for n in range(5)]


INVALID = "invalid mapping destination: "
BAD_ARGUMENT = INVALID + "function argument is invalid or in the wrong format in "


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("a..b", "x", "invalid subject"),
        ("a.>.b", "x", "invalid subject"),
        ("a.*", "x.*", "invalid subject"),
        ("a.*", "x.>", "invalid subject"),
        ("a.>", "x", "invalid subject"),
        ("", "x", "invalid subject"),
        ("a.*", "x.$2", INVALID + "wildcard index out of range in $2: [2]"),
        ("a.>", "$1.>", INVALID + "wildcard index out of range in $1: [1]"),
        ("a", "x.{{split(1,-)}}", INVALID + "wildcard index out of range in {{split(1,-)}}"),
        ("a.*", "x.{{left(1)}}", INVALID + "not enough arguments passed to the function in {{left(1)}}"),
        ("*", "{{wildcard()}}", INVALID + "not enough arguments passed to the function in {{wildcard()}}"),
        (
            "*",
            "{{wildcard(1,1)}}",
            INVALID + "too many arguments passed to the function in {{wildcard(1,1)}}",
        ),
        ("*", "{{random(1,1)}}", INVALID + "not enough arguments passed to the function in {{random(1,1)}}"),
        ("*", "{{partition()}}", BAD_ARGUMENT + "{{partition()}}"),
        ("*", "{{partition(1_0)}}", BAD_ARGUMENT + "{{partition(1_0)}}"),
        ("*", "{{split(1,- -)}}", BAD_ARGUMENT + "{{split(1,- -)}}"),
        ("*", "{{left(1,3000000000)}}", BAD_ARGUMENT + "{{left(1,3000000000)}}"),
        ("*", "{{SPLIT(1,-)}}", INVALID + "unknown function in {{SPLIT(1,-)}}"),
    ],
)
def test_a_transform_that_cannot_be_is_refused_in_the_peer_s_words(
    source: str, destination: str, text: str
) -> None:
    with pytest.raises(TransformError) as caught:
        check_transform(source, destination)

    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("destination", "text"),
    [
        ("x..y", INVALID + "invalid transform"),
        ("x y", INVALID + "invalid transform"),
        ("x.>.y", INVALID + "invalid transform in y"),
        ("{{other(1)}}", INVALID + "unknown function in {{other(1)}}"),
        ("x.*", "invalid subject"),
    ],
)
def test_a_mapping_is_judged_by_its_destination_first(destination: str, text: str) -> None:
    with pytest.raises(TransformError) as caught:
        check_mapping("a..b" if destination != "x.*" else "*", destination)

    assert str(caught.value) == text
