"""The headers of a publish that affect how the stream handles it."""

from __future__ import annotations

import pytest

from pyjs.jetstream.stream.message_ttl import parse_ttl_ns
from pyjs.jetstream.stream.pub_headers import scan


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_known_headers_are_found() -> None:
    headers = block(
        b"A: b",
        b"Nats-Msg-Id:  id 1",
        b"Nats-Expected-Stream: S",
        b"Nats-Expected-Last-Sequence:7",
        b"Nats-Expected-Last-Subject-Sequence: 8",
        b"Nats-Expected-Last-Subject-Sequence-Subject: s.*",
        b"Nats-Expected-Last-Msg-Id: id0",
        b"Nats-Rollup: sub",
    )
    assert scan(headers) == {
        "msg_id": b"id 1",
        "expected_stream": b"S",
        "expected_last_seq": b"7",
        "expected_last_subject_seq": b"8",
        "expected_last_subject": b"s.*",
        "expected_last_msg_id": b"id0",
        "rollup": b"sub",
    }


def test_the_first_of_equal_names_counts() -> None:
    assert scan(block(b"Nats-Msg-Id: 1", b"Nats-Msg-Id: 2")) == {"msg_id": b"1"}


def test_names_match_exactly() -> None:
    assert scan(block(b"nats-msg-id: 1", b"Nats-Msg-Idx: 1", b"X-Nats-Msg-Id: 1", b" Nats-Msg-Id: 1")) == {}


def test_empty_values_count_as_absent() -> None:
    assert scan(block(b"Nats-Msg-Id:", b"Nats-Rollup:   ")) == {}


def test_headers_of_later_features_are_noticed() -> None:
    assert scan(block(b"Nats-Incr: 1")) == {"increment": b"1", "later": b""}
    assert scan(block(b"Nats-TTL: 1m")) == {"ttl": b"1m", "later": b""}


@pytest.mark.parametrize(
    ("text", "seconds"), [(b"1", 1), (b"1s", 1), (b"007", 7), (b"999999999s", 999_999_999)]
)
def test_a_plain_time_to_live_is_read_at_once(text: bytes, seconds: int) -> None:
    assert scan(block(b"Nats-TTL: " + text)) == {"ttl": text, "ttl_ns": seconds * 10**9}
    assert parse_ttl_ns(text) == seconds * 10**9


@pytest.mark.parametrize(
    "text", [b"0", b"0s", b"s", b"ss", b"1 ", b"-1", b"+1", b"1.5s", b"never", b"1234567890"]
)
def test_any_other_time_to_live_is_read_by_its_text(text: bytes) -> None:
    assert scan(block(b"Nats-TTL: " + text)) == {"ttl": text, "later": b""}


def test_blocks_that_end_early_are_read_safely() -> None:
    whole = block(b"Nats-Msg-Id: 1", b"Nats-Rollup: sub")
    for size in range(len(whole)):
        scan(whole[:size])
