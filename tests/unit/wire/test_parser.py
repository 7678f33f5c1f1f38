"""The parser: grammar, limits, and independence of how the bytes are split into reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjs.wire.parser import Parser

Operation = tuple[str, tuple[bytes, ...]]


def parse(*reads: bytes, **limits: int) -> list[Operation]:
    parser = Parser()
    for name, value in limits.items():
        setattr(parser, name, value)
    out: list[Operation] = []
    for read in reads:
        out += parser.feed(read)
        if out and out[-1][1] == ():
            return out
    return out


def message(
    subject: bytes, reply: bytes = b"", headers: bytes = b"", payload: bytes = b"", tail: bytes = b""
) -> Operation:
    return "MSG", (subject, reply, headers, payload, tail)


VALID = [
    (b"PUB a 2\r\nhi\r\n", [message(b"a", payload=b"hi", tail=b"2\r\nhi\r\n")]),
    (b"PUB a r 2\r\nhi\r\n", [message(b"a", b"r", payload=b"hi", tail=b"r 2\r\nhi\r\n")]),
    (b"pUb \t a   r\t2 \r\nhi\r\n", [message(b"a", b"r", payload=b"hi", tail=b"r 2\r\nhi\r\n")]),
    (b"PUB a 2\nhi\r\n", [message(b"a", payload=b"hi", tail=b"2\r\nhi\r\n")]),
    (b"PUB a 0\r\n\r\n", [message(b"a", tail=b"0\r\n\r\n")]),
    (b"PUB a 002\r\nhi\r\n", [message(b"a", payload=b"hi", tail=b"002\r\nhi\r\n")]),
    (b"HPUB a 4 6\r\nHHHHhi\r\n", [message(b"a", b"", b"HHHH", b"hi", b"4 6\r\nHHHHhi\r\n")]),
    (b"HPUB a r 4 6\r\nHHHHhi\r\n", [message(b"a", b"r", b"HHHH", b"hi", b"r 4 6\r\nHHHHhi\r\n")]),
    (b"HPUB a r  4  6\r\nHHHHhi\r\n", [message(b"a", b"r", b"HHHH", b"hi", b"r 4 6\r\nHHHHhi\r\n")]),
    (b"HPUB a 0 2\r\nhi\r\n", [message(b"a", b"", b"", b"hi", b"2\r\nhi\r\n")]),
    (b"SUB a 1\r\n", [("SUB", (b"a 1",))]),
    (b"SUB a q 1\n", [("SUB", (b"a q 1",))]),
    (b"unsub 1 5\r\n", [("UNSUB", (b"1 5",))]),
    (b"PING\r\nPINGabc\r\nping\n", [("PING", (b"",)), ("PING", (b"abc",)), ("PING", (b"",))]),
    (b"PONG\r\n", [("PONG", (b"",))]),
    (b"CONNECT\r\n", [("CONNECT", (b"",))]),
    (b'CONNECT {"a":1}\r\n', [("CONNECT", (b'{"a":1}',))]),
    (b"INFO {}\r\n+OK\r\n", [("INFO", (b"{}",)), ("+OK", (b"",))]),
    (b"-ERR 'x'\r\n", [("-ERR", (b"'x'",))]),
]
INVALID = [
    (b"X", "BAD"),
    (b"\r\n", "BAD"),
    (b"PUX", "BAD"),
    (b"PUBa 2\r\n", "BAD"),
    (b"SUB\r\n", "BAD"),
    (b"UNSUB\r\n", "BAD"),
    (b"MSG a 1 2\r\nhi\r\n", "BAD"),
    (b"RS+ a\r\n", "BAD"),
    (b"PUB a 2\r\nhixx", "BAD"),
    (b"PUB a 2\r\nhi\n", "BAD"),
    (b"PUB a 2\r\nhi\rx", "BAD"),
    (b"PUB \r\n", "BAD_ARGS"),
    (b"PUB a\r\n", "BAD_ARGS"),
    (b"PUB a b c 2\r\n", "BAD_ARGS"),
    (b"PUB a -1\r\n", "BAD_ARGS"),
    (b"PUB a 1x\r\n", "BAD_ARGS"),
    (b"PUB a 1234567890\r\n", "BAD_ARGS"),
    (b"HPUB a 2\r\n", "BAD_ARGS"),
    (b"HPUB a 7 6\r\nHHHHhi\r\n", "BAD_ARGS"),
    (b"HPUB a b c 4 6\r\n", "BAD_ARGS"),
    (b"PUB a 1048577\r\n", "TOO_BIG"),
    (b"SUB " + b"a" * 5000 + b" 1\r\n", "LINE_TOO_LONG"),
    (b"SUB " + b"a" * 5000, "LINE_TOO_LONG"),
    (b"CONNECT " + b"a" * 5000, "LINE_TOO_LONG"),
]


@pytest.mark.parametrize(("data", "expected"), VALID)
def test_valid_input_gives_its_operations(data: bytes, expected: list[Operation]) -> None:
    assert parse(data) == expected


@pytest.mark.parametrize(("data", "expected"), VALID)
def test_valid_input_split_at_every_byte_boundary_gives_the_same(
    data: bytes, expected: list[Operation]
) -> None:
    for cut in range(1, len(data)):
        assert parse(data[:cut], data[cut:]) == expected, cut
    assert parse(*(data[at : at + 1] for at in range(len(data)))) == expected


@pytest.mark.parametrize(("data", "error"), INVALID)
def test_invalid_input_is_refused_however_it_is_split(data: bytes, error: str) -> None:
    assert parse(data)[-1] == (error, ())
    for cut in range(1, min(len(data), 64)):
        assert parse(data[:cut], data[cut:])[-1] == (error, ()), cut


def test_operations_before_the_wrong_one_are_seen() -> None:
    assert parse(b"PING\r\nPUB a 2\r\nhi\r\nXYZ\r\n") == [
        ("PING", (b"",)),
        message(b"a", payload=b"hi", tail=b"2\r\nhi\r\n"),
        ("BAD", ()),
    ]


@pytest.mark.parametrize("length", range(1, 34))
def test_a_token_ends_at_a_blank_and_at_no_other_control_character(length: int) -> None:
    for at, char in itertools.product(range(length), range(256)):
        if char in b"\t\n\r ":
            continue
        token = b"x" * at + bytes([char]) + b"y" * (length - at - 1)
        assert parse(b"PUB " + token + b"\tr 0\r\n\r\n") == [message(token, b"r", tail=b"r 0\r\n\r\n")]


def test_payload_of_exactly_the_maximum_is_taken() -> None:
    assert parse(b"PUB a 8\r\n12345678\r\n", max_payload=8)[0][0] == "MSG"
    assert parse(b"PUB a 9\r\n", max_payload=8) == [("TOO_BIG", ())]


def test_hpub_without_header_support_is_refused() -> None:
    assert parse(b"HPUB a 4 6\r\n", headers=False) == [("NO_HEADERS", ())]


def test_a_large_payload_over_many_reads_is_one_operation() -> None:
    payload = bytes(range(256)) * 2000
    data = b"PUB big %d\r\n%b\r\nPING\r\n" % (len(payload), payload)
    reads = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    operations = parse(*reads)
    assert [name for name, _ in operations] == ["MSG", "PING"]
    assert operations[0][1][3] == payload


TOKENS = st.text("ab*>.", min_size=1, max_size=5).map(str.encode)
PAYLOADS = st.binary(max_size=40)
HEADERS = st.binary(min_size=1, max_size=20)


def _pub(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> tuple[bytes, Operation]:
    size = len(headers) + len(payload)
    words = [subject, *([reply] if reply else []), *([b"%d" % len(headers)] if headers else []), b"%d" % size]
    verb = b"HPUB " if headers else b"PUB "
    line = verb + b" ".join(words) + b"\r\n" + headers + payload + b"\r\n"
    return line, message(subject, reply, headers, payload, line[len(verb) + len(subject) + 1 :])


OPERATIONS = st.one_of(
    st.builds(_pub, TOKENS, st.one_of(st.just(b""), TOKENS), st.one_of(st.just(b""), HEADERS), PAYLOADS),
    st.sampled_from([(b"PING\r\n", ("PING", (b"",))), (b"SUB a 1\r\n", ("SUB", (b"a 1",)))]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_any_sequence_split_anywhere_gives_the_same_operations(
    operations: list[tuple[bytes, Operation]], cuts: list[int]
) -> None:
    data = b"".join(line for line, _ in operations)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    reads = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(*reads) == [operation for _, operation in operations]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_any_bytes_give_the_same_result_however_they_are_split(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    reads = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(*reads) == parse(data)
