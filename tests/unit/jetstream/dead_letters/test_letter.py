"""Letters as bytes: their headers, encoded and decoded."""

from __future__ import annotations

import pytest

from pyjs.jetstream.dead_letters import letter as letters
from pyjs.jetstream.dead_letters.letter import (
    Origin,
    read_letter,
    reason_line,
    reason_of_term,
    replay_headers,
)
from pyjs.store.store import StoredMessage

ORIGIN = Origin("ORDERS", 5, "bakery", 6)
HEADERS = b"NATS/1.0\r\nnats-msg-id: 1\r\nNats-TTL: 5m\r\nColour: red\r\nColour: blue\r\n\r\n"


def headers_of(headers: bytes, reason: bytes = b"max_deliver") -> bytes:
    message = StoredMessage(17, 1_700_000_000_000_000_000, b"orders.new", headers, b"bread")
    return ORIGIN.headers_of(message, reason, 3, "DEAD", 0)


def test_a_letter_has_these_bytes() -> None:
    assert headers_of(HEADERS).decode().split("\r\n") == [
        "NATS/1.0",
        "Dead-Letter-Original-nats-msg-id: 1",
        "Dead-Letter-Original-Nats-TTL: 5m",
        "Colour: red",
        "Colour: blue",
        "Nats-Msg-Id: dead-letter:ORDERS:5:bakery:6:17:1700000000000000000",
        "Nats-Expected-Stream: DEAD",
        "Nats-Expected-Last-Subject-Sequence: 0",
        "Dead-Letter-Reason: max_deliver",
        "Dead-Letter-Stream: ORDERS",
        "Dead-Letter-Consumer: bakery",
        "Dead-Letter-Subject: orders.new",
        "Dead-Letter-Sequence: 17",
        "Dead-Letter-Deliveries: 3",
        "Dead-Letter-Time: 2023-11-14T22:13:20Z",
        "",
        "",
    ]


def test_a_replay_restores_headers_that_do_not_act() -> None:
    found = read_letter(headers_of(HEADERS))
    assert found is not None
    assert (found.stream, found.consumer, found.subject) == (b"ORDERS", b"bakery", b"orders.new")
    assert found.headers == b"Nats-TTL: 5m\r\nColour: red\r\nColour: blue\r\n"
    assert replay_headers(found, "DEAD", 9, 4).decode().split("\r\n") == [
        "NATS/1.0",
        "Nats-TTL: 5m",
        "Colour: red",
        "Colour: blue",
        "Nats-Msg-Id: dead-letter-replay:DEAD:9:4",
        "Nats-Expected-Stream: ORDERS",
        "Dead-Letter-Replay: DEAD 4 bakery",
        "",
        "",
    ]


def test_a_letter_of_a_letter_keeps_both() -> None:
    second = headers_of(headers_of(HEADERS), b"term: again")
    found = read_letter(second)
    assert found is not None
    assert found.reason == b"term: again"
    assert b"Dead-Letter-Reason: max_deliver\r\n" in found.headers
    assert b"Dead-Letter-Original-Nats-TTL: 5m\r\n" in found.headers
    assert b"Nats-Msg-Id" not in found.headers


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"NATS/1.0\r\nColour: red\r\n\r\n",
        b"NATS/1.0\r\nDead-Letter-Stream: S\r\n\r\n",
        b"NATS/1.0\r\nDead-Letter-Stream: S\r\nDead-Letter-Subject: a.>\r\n\r\n",
        b"NATS/1.0\r\nDead-Letter-Stream: S\r\nDead-Letter-Subject: a b\r\n\r\n",
        b"NATS/1.0\r\nDead-Letter-Subject: a\r\nno colon\r\n\r\n",
    ],
)
def test_other_messages_are_no_letters(headers: bytes) -> None:
    assert read_letter(headers) is None


def test_reasons_are_one_line_of_bounded_size() -> None:
    assert reason_of_term(" a\r\nNats-Rollup: all\tb ") == b"a Nats-Rollup: all b"
    assert reason_of_term("\u00e4" * 1000) == "\u00e4".encode() * (letters.REASON_SIZE_MAX // 2)
    assert reason_of_term("x" + "\u00e4" * 1000).decode()[-1] == "\u00e4"
    assert [reason_line(None), reason_line(b""), reason_line(b"x")] == [b"max_deliver", b"term", b"term: x"]


def test_an_id_is_found_only_whole() -> None:
    message = StoredMessage(1, 2, b"a", b"", b"")
    assert letters.has_id(ORIGIN.headers_of(message, b"term", 1, "D", 0), ORIGIN.id_of(message))
    assert not letters.has_id(headers_of(b""), ORIGIN.id_of(message))
