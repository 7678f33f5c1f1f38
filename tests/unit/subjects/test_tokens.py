"""Subject tokens: validity, matching, overlap, subsets; compared with a simple reference."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs.subjects.tokens import (
    is_subset,
    is_valid_literal,
    is_valid_subject,
    subject_has_wildcard,
    subject_matches,
    subjects_overlap,
)

WORDS = st.sampled_from([b"a", b"b", b"ab", b"*", b">", b"a*", b""])
SUBJECTS = st.lists(WORDS, min_size=1, max_size=4).map(b".".join)


@pytest.mark.parametrize("subject", [b"a", b"a.b", b"*", b">", b"a.*.c", b"a.>", b"foo*", b"a>b", b"*a.>b"])
def test_whole_token_wildcards_and_literals_are_valid(subject: bytes) -> None:
    assert is_valid_subject(subject)


@pytest.mark.parametrize("subject", [b"", b".", b".a", b"a.", b"a..b", b">.a", b"a.>.b", b"a b", b"a\tb"])
def test_empty_tokens_blanks_and_early_tails_are_invalid(subject: bytes) -> None:
    assert not is_valid_subject(subject)


def test_only_whole_tokens_are_wildcards() -> None:
    assert is_valid_literal(b"foo*.b>")
    assert not is_valid_literal(b"foo.*")
    assert subject_has_wildcard(b"a.>")
    assert not subject_has_wildcard(b"a*.>b")


def reference_matches(subject: bytes, pattern: bytes) -> bool:
    words, wanted = subject.split(b"."), pattern.split(b".")
    if wanted[-1] == b">":
        return len(words) >= len(wanted) and all(
            want in (b"*", word) for word, want in zip(words, wanted[:-1], strict=False)
        )
    return len(words) == len(wanted) and all(
        want in (b"*", word) for word, want in zip(words, wanted, strict=True)
    )


LITERALS = st.lists(st.sampled_from([b"a", b"b", b"ab"]), min_size=1, max_size=4).map(b".".join)


@given(LITERALS, SUBJECTS.filter(is_valid_subject))
def test_matching_agrees_with_the_reference(subject: bytes, pattern: bytes) -> None:
    assert subject_matches(subject, pattern) == reference_matches(subject, pattern)


ALL_LITERALS = [b".".join(words) for length in range(1, 5) for words in product([b"a", b"b"], repeat=length)]
PATTERNS = st.lists(st.sampled_from([b"a", b"b", b"*", b">"]), min_size=1, max_size=3).map(b".".join)


@given(PATTERNS.filter(is_valid_subject), PATTERNS.filter(is_valid_subject))
def test_overlap_and_subset_agree_with_the_sets_of_literals(a: bytes, b: bytes) -> None:
    in_a = {literal for literal in ALL_LITERALS if reference_matches(literal, a)}
    in_b = {literal for literal in ALL_LITERALS if reference_matches(literal, b)}
    assert subjects_overlap(a, b) == bool(in_a & in_b)
    if is_subset(a, b):
        assert in_a <= in_b
