"""Headers that request a trace."""

from __future__ import annotations

import pytest

from pyjs.core.tracing.request import disabled_in_place, read_request, with_hop, without_trace

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_headers_without_a_destination_ask_for_nothing() -> None:
    assert read_request(block(b"k: v", b"Nats-Trace-Only: true")) is None


def test_a_block_with_a_status_asks_for_nothing() -> None:
    assert read_request(b"NATS/1.0 503\r\nNats-Trace-Dest: t\r\n\r\n") is None


def test_names_keep_their_case_and_equal_names_their_order() -> None:
    request = read_request(block(b"Nats-Trace-Dest: t", b"K:  1 ", b"K:2", b"k: 3", b"empty:", b"no colon"))

    assert request is not None
    assert request.headers == {"Nats-Trace-Dest": ["t"], "K": ["1", "2"], "k": ["3"]}
    assert not request.external


@pytest.mark.parametrize("word", [b"1", b"true", b"ON", b"True"])
def test_a_trace_only_message_is_known_by_its_word(word: bytes) -> None:
    request = read_request(block(b"Nats-Trace-Dest: t", b"Nats-Trace-Only: " + word))

    assert request is not None
    assert request.only


def test_another_word_delivers_the_message() -> None:
    request = read_request(block(b"Nats-Trace-Dest: t", b"Nats-Trace-Only: yes"))

    assert request is not None
    assert not request.only


def test_a_disabled_destination_asks_for_nothing() -> None:
    assert read_request(block(b"Nats-Trace-Dest: trace disabled", b"traceparent: " + PARENT + b"01")) is None


@pytest.mark.parametrize(
    ("flags", "sampled"),
    [(b"01", True), (b"03", True), (b"00", False), (b"ff", False), (b"zz", False), (b"1", False)],
)
def test_a_traceparent_asks_if_it_is_sampled(flags: bytes, sampled: bool) -> None:
    request = read_request(block(b"TraceParent: " + PARENT + flags, b"Nats-Trace-Only: true"))

    assert (request is not None) == sampled
    assert request is None or (request.external and not request.only)


def test_a_traceparent_with_fewer_parts_asks_for_nothing() -> None:
    assert read_request(block(b"traceparent: 00-01")) is None


def test_a_decision_against_a_trace_is_the_last_header() -> None:
    assert without_trace(block(b"Nats-Trace-Dest: t", b"k: v")) == block(
        b"k: v", b"Nats-Trace-Dest: trace disabled"
    )


def test_a_stored_message_asks_for_no_trace_later() -> None:
    assert disabled_in_place(block(b"Nats-Trace-Dest: t", b"k: v")) == block(
        b"Nats-Trace-Dest: trace disabled", b"k: v"
    )
    assert disabled_in_place(block(b"Nats-Trace-Dest:t")) == block(b"Nats-Trace-Dest:trace disabled")
    assert disabled_in_place(block(b"k: v")) == block(b"k: v", b"Nats-Trace-Dest: trace disabled")


def test_the_hop_of_another_server_replaces_the_own_one() -> None:
    assert with_hop(block(b"Nats-Trace-Dest: t", b"Nats-Trace-Hop: 1", b"k: v"), "1.2", "A") == block(
        b"Nats-Trace-Dest: t", b"k: v", b"Nats-Trace-Origin-Account: A", b"Nats-Trace-Hop: 1.2"
    )
