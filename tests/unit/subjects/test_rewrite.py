"""Compiled transforms yield the same results as SubjectTransform, also for subjects with wildcards."""

from __future__ import annotations

import random

import pytest

from pyjs.base.rng import SeededRng
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.transform import SubjectTransform, TransformError

TOKENS = ["a", "b", "*", "*", "c"]
MADE = ["x", "$1", "$2", "{{wildcard(1)}}", "{{partition(5,1)}}", "{{left(1,1)}}", "{{split(1,-)}}", "y"]


def compiled(source: str, destination: str) -> Rewrite:
    return Rewrite(SubjectTransform(source, destination, SeededRng(1)))


def test_both_forms_agree_on_random_transforms_and_subjects() -> None:
    chance, checked = random.Random(7), 0
    for _ in range(3000):
        tail = [">"] if chance.random() < 0.4 else []
        source = ".".join(chance.choices(TOKENS, k=chance.randint(1, 4)) + tail)
        destination = ".".join(chance.choices(MADE, k=chance.randint(1, 5)) + tail)
        try:
            transform = SubjectTransform(source, destination, SeededRng(1))
        except TransformError:
            continue
        rewrite = Rewrite(transform)
        for _ in range(8):
            words = chance.choices(["a", "b", "c", "d-e", "long-token-here"], k=chance.randint(1, 7))
            subject = ".".join(words).encode()
            assert rewrite.subject(subject) == transform.apply(subject), (source, destination, subject)
            checked += 1
    assert checked > 5000


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("a.*.*", "x.$2.$1", b"a.*.b", b"x.b.*"),
        ("a.>", "x.>", b"a.b.>", b"x.b.>"),
        ("a.*", "x.$1", b"b.c", None),
        ("a.*", "x.$1", b"", None),
        ("a", "b.c", b"a", b"b.c"),
    ],
)
def test_wildcards_in_the_subject_are_tokens_as_others(
    source: str, destination: str, subject: bytes, expected: bytes | None
) -> None:
    assert compiled(source, destination).subject(subject) == expected


def test_a_subject_of_very_many_tokens_is_rewritten() -> None:
    many = b".".join([b"t"] * 300)
    assert compiled("a.*.>", "x.$1.>").subject(b"a.one." + many) == b"x.one." + many


def test_a_source_of_very_many_tokens_is_left_to_the_transform() -> None:
    source = ".".join(["*"] * 100)
    subject = ".".join(f"t{number}" for number in range(100))
    assert compiled(source, "x.$90").subject(subject.encode()) == b"x.t89"
