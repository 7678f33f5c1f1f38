"""JSON from outside: every fault in it is a ValueError."""

from __future__ import annotations

import pytest

from pyjs_spark import strict_json


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000,
        rb'{"a": "\ud800"}',
        rb'{"\uDFFF": 1}',
        rb'["\ud800x\udc00"]',
        b'"\xed\xa0\x80"',
        b"\xff",
        b"",
        "{",
        b"1" * 5000,
    ],
)
def test_what_no_text_of_ours_can_hold_is_refused(said: bytes | str) -> None:
    with pytest.raises(ValueError):
        strict_json.loads(said)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no object"):
        strict_json.an_object(b"[]")


def test_pairs_of_surrogates_are_text() -> None:
    assert strict_json.loads(rb'{"a": "\ud83d\ude00"}') == {"a": "\N{GRINNING FACE}"}
    assert strict_json.an_object('{"a": [1]}') == {"a": [1]}
