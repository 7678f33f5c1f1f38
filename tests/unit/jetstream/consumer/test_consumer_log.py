"""Deltas of a consumer's state."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.acks.log import StateLog, decode

DELIVERED, ACKED, ACKED_ALL, REDELIVERED, PROGRESS, NAKED, DELAYED, EXHAUSTED, SETTLED, TERMINATED = range(
    1, 11
)


def test_deliveries_and_acks_in_a_row_become_one_change_each() -> None:
    # given
    log = StateLog()
    for seq in range(10, 510):
        log.add(DELIVERED, seq, seq - 5, 1000)
    for seq in range(10, 510):
        log.add(ACKED, seq)
    # when
    delta = log.take()
    # then
    assert list(decode(delta)) == [(DELIVERED, 10, 5, 500, 1000), (ACKED, 10, 500)]
    assert len(delta) == 11


@pytest.mark.parametrize("second", [(12, 2, 7), (11, 3, 7), (11, 2, 8)])
def test_a_gap_or_another_time_begins_a_new_change(second: tuple[int, int, int]) -> None:
    # given
    log = StateLog()
    log.add(DELIVERED, 10, 1, 7)
    log.add(DELIVERED, *second)
    # when, then
    seq, cseq, ts = second
    assert list(decode(log.take())) == [(DELIVERED, 10, 1, 1, 7), (DELIVERED, seq, cseq, 1, ts)]


def test_every_change_reads_back_in_order() -> None:
    # given
    log = StateLog()
    changes = [
        (ACKED_ALL, 2**63, 300),
        (REDELIVERED, 5, 1_700_000_000_000_000_000),
        (PROGRESS, 5, 6),
        (NAKED, 128),
        (DELAYED, 5, 127),
        (EXHAUSTED, 0),
        (SETTLED, 2**64 - 1),
    ]
    for change in changes:
        log.add(*change)
    # when, then
    assert list(decode(log.take())) == changes
    assert log.take() == b""


def test_the_reason_of_a_term_follows_its_numbers() -> None:
    log = StateLog()
    log.add(ACKED, 1)
    log.add(TERMINATED, 300, b"no")
    log.add(TERMINATED, 2, b"")
    log.add(NAKED, 7)
    delta = log.take()
    assert delta == bytes([2, 1, 1, 10, 0xAC, 0x02, 2]) + b"no" + bytes([10, 2, 0, 6, 7])
    changes = [(ACKED, 1, 1), (TERMINATED, 300, *b"no"), (TERMINATED, 2), (NAKED, 7)]
    assert list(decode(delta)) == changes


def test_a_log_is_empty_until_a_change_comes_and_after_it_was_taken() -> None:
    log = StateLog()
    assert log.is_empty
    log.add(ACKED, 1)
    assert not log.is_empty
    log.take()
    assert log.is_empty
    log.lost = True
    assert not log.is_empty


def test_a_hand_typed_delta() -> None:
    assert list(decode(bytes([1, 0xAC, 0x02, 1, 2, 9, 2, 0xAC, 0x02, 1, 6, 7]))) == [
        (DELIVERED, 300, 1, 2, 9),
        (ACKED, 300, 1),
        (NAKED, 7),
    ]


def test_a_log_that_is_not_enabled_keeps_nothing() -> None:
    # given
    log = StateLog(False)
    # when
    log.add(DELIVERED, 1, 1, 1)
    log.add(ACKED, 1)
    log.add(NAKED, 1)
    # then
    assert log.take() == b""


@pytest.mark.parametrize("delta", [b"\x0b\x01", b"\x00", b"\x06", b"\x06\x80", b"\x0a\x01\x02x", b"\x0a\x01"])
def test_what_is_no_delta_is_refused(delta: bytes) -> None:
    with pytest.raises(ValueError, match="consumer state"):
        list(decode(delta))
