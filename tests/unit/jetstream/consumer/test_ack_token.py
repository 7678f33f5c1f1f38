"""Ack subjects and ack payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs.jetstream.consumer.delivery.writer import compose_tokens, parse, verb_of

NUMBERS = st.integers(0, 2**63 - 1)
STEPS = st.sampled_from([1, 1, 1, 1, 0, 2])
TIMES = st.sampled_from([0, 1, 1000, 10**8, 10**10])


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2**64 - 1))
def test_a_token_is_five_decimal_numbers(count: int, seq: int, cseq: int, ts: int, pending: int) -> None:
    # when
    [token] = compose_tokens([(count, seq, cseq, ts, pending)])
    # then
    assert token == f"{count}.{seq}.{cseq}.{ts}.{pending}".encode()
    expected = tuple(n if n < 10**19 else 2**64 - 1 for n in (count, seq, cseq))
    assert parse(token) == expected


@given(
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.integers(0, 2**32),
    st.lists(st.tuples(STEPS, STEPS, TIMES, STEPS), max_size=60),
)
def test_a_token_written_over_the_last_one_has_no_digit_of_it(
    seq: int, cseq: int, ts: int, pending: int, steps: list[tuple[int, int, int, int]]
) -> None:
    # given
    deliveries = [(1, seq, cseq, ts, pending)]
    for seq_step, cseq_step, later, taken in steps:
        _, seq, cseq, ts, pending = deliveries[-1]
        deliveries.append((1, seq + seq_step, cseq + cseq_step, ts + later, max(pending - taken, 0)))
    # when
    tokens = compose_tokens(deliveries)
    # then
    assert tokens == [".".join(map(str, delivery)).encode() for delivery in deliveries]


def test_the_tokens_of_a_long_run_count_up_and_down() -> None:
    # given
    run = [(1, 95 + i, i + 1, 1_790_000_000_099_999_000 + 7 * i, 12_000 - i) for i in range(12_000)]
    redelivery = (2, 99, 12_001, 1_790_000_000_099_999_028, 0)
    # when
    tokens = compose_tokens([*run, redelivery, *run])
    # then
    expected = [".".join(map(str, delivery)).encode() for delivery in (*run, redelivery, *run)]
    assert tokens == expected


@pytest.mark.parametrize("text", [b"", b"1", b"1.2.3", b"1.2.3.4", b"1.2"])
def test_fewer_than_five_tokens_are_refused(text: bytes) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"x.2.3.4.5", (2**64 - 1, 2, 3)),
        (b"1.-2.3.4.5", (1, 2**64 - 1, 3)),
        (b"1.2..4.5", (1, 2, 2**64 - 1)),
        (b"1.99999999999999999999.3.4.5", (1, 2**64 - 1, 3)),
        (b"1.2.3.4.5.more", (1, 2, 3)),
    ],
)
def test_what_is_no_number_becomes_one_that_no_delivery_has(text: bytes, read: tuple[int, int, int]) -> None:
    assert parse(text) == read


@pytest.mark.parametrize(
    ("payload", "verb"),
    [
        (b"", "ack"),
        (b"+ACK", "ack"),
        (b"+OK", "ack"),
        (b"+ACKS", "other"),
        (b"-NAK", "nak"),
        (b'-NAK {"delay": 1}', "nak"),
        (b"+WPI", "in_progress"),
        (b"+WPI ", "other"),
        (b"+NXT 5", "next"),
        (b"+TERM", "term"),
        (b"+TERM because", "term"),
        (b"+TER", "other"),
        (b"x", "other"),
        (b"hello", "other"),
    ],
)
def test_verbs(payload: bytes, verb: str) -> None:
    assert verb_of(payload) == verb
