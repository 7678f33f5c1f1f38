"""The sequences that a consumer delivers first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.packed import pack

from pyjs.jetstream.consumer.delivery.cursor import Skips

SEQS = st.lists(st.integers(1, 2**64 - 2), unique=True, max_size=50).map(sorted)


@given(seqs=SEQS)
def test_what_is_packed_is_what_was_given(seqs: list[int]) -> None:
    skips = Skips(pack(seqs))
    assert skips.left == len(seqs)
    assert skips.packed() == pack(seqs)
    assert Skips.from_state(skips.state()).packed() == pack(seqs)


@given(seqs=SEQS, others=SEQS)
def test_a_list_knows_what_it_has(seqs: list[int], others: list[int]) -> None:
    skips = Skips(pack(seqs))
    assert [seq for seq in {*seqs, *others} if skips.has(seq)] == [
        seq for seq in {*seqs, *others} if seq in seqs
    ]


def test_a_long_list_knows_what_it_has() -> None:
    skips = Skips(pack(range(3, 30_000, 3)))
    assert [seq for seq in range(30_010) if skips.has(seq)] == list(range(3, 30_000, 3))


def test_a_state_of_none_is_an_empty_list() -> None:
    assert Skips(b"").state() == []
    assert Skips.from_state([]).left == 0


@pytest.mark.parametrize(
    "packed",
    [
        b"\x00",  # sequence 0
        b"\x05\x00",  # the same once more
        b"\x80",  # the number is incomplete
        b"\x80" * 20 + b"\x01",  # nor is one of this length
        b"\xff" * 9 + b"\x02",  # 2^64
        b"\xff" * 9 + b"\x01",  # 2^64 - 1
        pack([2**64 - 2]) + b"\x01",  # with one more
    ],
    ids=bytes.hex,
)
def test_bytes_that_are_no_ascending_sequences_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Skips(packed)


@pytest.mark.parametrize(
    "kept", ["x", "AA=", "ÿÿ", None, True, 5, [7], [-1], [2**64], [3, 2], [1.5], ["1"], {"a": 1}]
)
def test_a_state_that_is_nothing_of_the_kind_is_refused(kept: object) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Skips.from_state(kept)  # type: ignore[arg-type]
