"""Subject mappings: valid forms, the resulting subjects, and the equivalent regular expressions."""

from __future__ import annotations

import re

import pytest

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.replay.mapping import parse, pattern_of


@pytest.mark.parametrize(
    ("said", "subject", "expected"),
    [
        ("orders.> -> again.orders.>", "orders.new.x", "again.orders.new.x"),
        ("> -> old.>", "orders.new", "old.orders.new"),
        ("orders.new -> orders.old", "orders.new", "orders.old"),
        ("orders.*.* -> $2.from.$1", "orders.a.b", "b.from.a"),
        ("orders.*.> -> {{wildcard(1)}}.>", "orders.a.b.c", "a.b.c"),
        ("orders.* -> x.{{ Wildcard( 1 ) }}", "orders.a", "x.a"),
        ("or+ders.(a -> $x.y", "or+ders.(a", None),
        ("orders.* -> gone", "orders.a", "gone"),
        ("orders.* -> x.$1", "orders", None),
        ("orders.* -> x.$1", "orders.a.b", None),
        ("orders.> -> x.>", "orders", None),
        ("a.b -> c", "axb", None),
        ("orders.* -> x.$1", "orders.a\u2028b", "x.a\u2028b"),
    ],
)
def test_a_mapping_sends_a_subject_where_nats_would(said: str, subject: str, expected: str | None) -> None:
    if expected is None and "$x" in said:
        with pytest.raises(OptionError, match="is no token"):
            parse(said)
        return

    each = parse(said)

    in_python = re.sub(r"\$(\d+)", r"\\g<\1>", each.replacement)  # the JVM writes groups as $1
    found = re.sub(each.pattern, in_python, subject) if re.search(each.pattern, subject) else None
    assert found == expected


def test_the_same_mapping_is_the_same_text() -> None:
    assert str(parse("a.*->b.{{wildcard(1)}}")) == str(parse("a.* -> b.$1")) == "a.* -> b.$1"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("orders.>", "write it as 'orders.> -> replay.orders.>'"),
        (" -> x", "nothing is no subject"),
        ("a..b -> x", "a..b is no subject"),
        ("a -> ", "nothing is no subject"),
        ("a.* -> b.*", "say which wildcard: $1 is what the first * of the source matched"),
        ("a.> -> b", "both sides end with >, or none does"),
        ("a.* -> b.$2", "$2 is not there: the source has 1 wildcards *"),
        ("a.* -> b.x{{wildcard(1)}}", "x{{wildcard(1)}} is no token: $1 and {{wildcard(1)}} stand alone"),
    ],
)
def test_what_is_no_mapping_is_refused_with_the_reason(said: str, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(said)

    assert str(caught.value).startswith(f"map {said!r} is not allowed: ")
    assert why in str(caught.value)


def test_a_pattern_of_filters_matches_whole_subjects() -> None:
    pattern = pattern_of(["orders.*", "bills.>"])

    found = [
        each
        for each in ("orders.a", "orders.a.b", "bills", "bills.x.y", "x.orders.a")
        if re.search(pattern, each)
    ]

    assert found == ["orders.a", "bills.x.y"]
