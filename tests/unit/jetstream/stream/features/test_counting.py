"""The arithmetic of counters; the texts and the order of the checks are in tests/conformance/scenarios/counter."""

from __future__ import annotations

import pytest

from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.counting import counted, increment_error, number_of, text_of

SIZE_MAX = 1 << 20
SOURCE = b"Nats-Stream-Source: EU 1 > > eu.x id"


def block(*lines: bytes) -> bytes:
    return b"".join(line + b"\r\n" for line in (b"NATS/1.0", *lines)) + b"\r\n"


def fault(headers: bytes, size: int = 0, allowed: bool = True) -> int:
    error = increment_error(headers, size, allowed)
    return 0 if error is None else error.err_code


def broken(headers: bytes, last_headers: bytes, last: bytes | None, copied: bytes | None = None) -> int:
    with pytest.raises(ApiError) as caught:
        counted(headers, last_headers, last, SIZE_MAX, copied)
    return caught.value.err_code


def test_an_increment_is_added_to_the_last_value() -> None:
    one = block(b"Nats-Incr: -7")
    assert counted(one, b"", None, SIZE_MAX) == (one, b'{"val":"-7"}', b"-7")
    assert counted(one, b"", b'{"val":"17"}', SIZE_MAX)[2] == b"10"


@pytest.mark.parametrize("digits", [1, 3999, 4000, 4001, 9001, 30000])
def test_numbers_of_any_size_are_read_and_written(digits: int) -> None:
    text = b"-" + b"9" * digits
    assert text_of(number_of(text)) == text
    assert text_of(number_of(text) - 1) == b"-1" + b"0" * digits
    assert text_of(number_of(b"+1" + b"0" * digits)) == b"1" + b"0" * digits


def test_the_sources_of_a_counter_stay_in_its_headers() -> None:
    before = block(b'Nats-Counter-Sources: {"EU":{"eu.x":"3"}}')
    headers, _, value = counted(block(b"Nats-Incr: 1"), before, b'{"val":"3"}', SIZE_MAX)
    assert value == b"4"
    assert headers == block(b"Nats-Incr: 1", b'Nats-Counter-Sources: {"EU":{"eu.x":"3"}}')


def test_a_copy_adds_the_change_since_the_last_one() -> None:
    before = block(b'Nats-Counter-Sources: {"EU":{"eu.x":"3"}}')
    copy = block(b"Nats-Incr: 1", SOURCE)
    headers, payload, _ = counted(copy, before, b'{"val":"10"}', SIZE_MAX, b'{"val":"8"}')
    assert payload == b'{"val":"15"}'
    assert headers == block(b"Nats-Incr: 5", SOURCE, b'Nats-Counter-Sources: {"EU":{"eu.x":"8"}}')


def test_characters_that_go_escapes_are_escaped() -> None:
    copy = block(b"Nats-Incr: 1", b"Nats-Stream-Source: EU 1 > > a&<>")
    headers, _, _ = counted(copy, b"", None, SIZE_MAX, b'{"val":"1"}')
    assert rb'{"EU":{"a\u0026\u003c\u003e":"1"}}' in headers


def test_a_source_header_without_a_subject_counts_for_the_stream() -> None:
    copy = block(b"Nats-Incr: 1", b"Nats-Stream-Source: EU 1 >")
    headers, _, _ = counted(copy, b"", None, SIZE_MAX, b'{"val":"1"}')
    assert b'{"EU":{"":"1"}}' in headers


@pytest.mark.parametrize(
    ("last", "value"),
    [
        (b"{}", b"1"),
        (b'{"val":null}', b"1"),
        (b'{"val":"x"}', b"1"),
        (b'{"val":"12x"}', b"13"),
        (b'{"val":"-5 "}', b"-4"),
    ],
)
def test_a_stored_text_counts_as_the_number_that_it_begins_with(last: bytes, value: bytes) -> None:
    assert counted(block(b"Nats-Incr: 1"), b"", last, SIZE_MAX)[2] == value


@pytest.mark.parametrize("last", [b"", b"[]", b'{"val":0}', b"{"])
def test_a_stored_value_that_is_no_text_is_refused(last: bytes) -> None:
    one = block(b"Nats-Incr: 1")
    assert broken(one, b"", last) == 10172
    assert broken(block(b"Nats-Incr: 1", SOURCE), b"", None, last) == 10172


@pytest.mark.parametrize("shown", [b"{", b"[1]", b'{"EU":1}', b'{"EU":{"a":1}}'])
def test_stored_sources_that_are_no_texts_are_refused(shown: bytes) -> None:
    assert broken(block(b"Nats-Incr: 1"), block(b"Nats-Counter-Sources: " + shown), b'{"val":"1"}') == 10172


def test_a_message_without_increment_or_too_large_is_refused() -> None:
    assert broken(block(b"Other: 1"), b"", None) == 10169
    with pytest.raises(ApiError, match="message size exceeds"):
        counted(block(b"Nats-Incr: 1"), b"", None, 30)


def test_increments_that_clients_may_not_send() -> None:
    assert fault(block(b"Other: 1"), 5, False) == 0
    assert fault(block(b"Nats-Incr: 1")) == 0
    assert fault(block(b"Nats-Incr: 1"), allowed=False) == 10168
    assert fault(block(b"Nats-Incr: x"), allowed=False) == 10171
    assert fault(block(b"Nats-Incr: 1"), size=1) == 10170
    assert fault(block(b"Nats-Incr: 1", b"Nats-Expected-Stream: S")) == 10171
