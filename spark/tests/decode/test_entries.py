"""Both decoders of entries and records: they return the expected columns and stop at the same places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.tests.conftest import arrow_or_skip
from spark.tests.support.columns import readable, rows_of, slow_map, values
from spark.tests.support.records import ENTRY, Stored, piece

arrow_or_skip()

from pyjs_spark.decode import (
    entries,  # its version in plain Python needs pyarrow
    hashing,  # its version in plain Python needs pyarrow
)
from pyjs_spark.decode.entries import ALONE, CHAINED, DAMAGED, FULL, TAKEN, WRONG, Decoder
from pyjs_spark_fast import entries as _entries

MakeDecoder = Callable[..., Decoder]
ALL = ("seq", "ts_ns", "subject", "headers", "data", "size")
FAR = 2**63 - 1
KINDS: list[Any] = [entries.Decoder, _entries.Decoder]
MAP = b"NATS/1.0\r\nA: 1\r\nB:x\r\nA:2\r\n\r\n"
FIRST = Stored(3, b"orders.new", b"", b"hello")
SECOND = Stored(4, b"a", MAP, b"world", is_extended=True)
THIRD = Stored(9, b"b.c", b"NATS/1.0\r\n\r\n", b"")
THREE = [FIRST, SECOND, THIRD]


@pytest.fixture(params=KINDS, ids=["pure", "compiled"])
def make(request: pytest.FixtureRequest) -> MakeDecoder:
    """Return a function that makes a decoder that is ready for records."""

    def made(
        columns: tuple[str, ...] = ALL,
        headers: str = "map",
        rows_max: int = 100,
        size_max: int = 1 << 20,
        low: int = 1,
        high: int = FAR,
    ) -> Decoder:
        decoder: Decoder = request.param(columns, headers, rows_max, size_max)
        decoder.listen(low, high)
        return decoder

    return made


def expected(messages: list[Stored]) -> dict[str, list[object]]:
    return {
        "seq": [message.seq for message in messages],
        "ts_ns": [message.ts for message in messages],
        "subject": [readable(message.subject) for message in messages],
        "headers": [slow_map(message.headers) for message in messages],
        "data": [message.payload for message in messages],
        "size": [len(message.payload) for message in messages],
    }


@pytest.mark.parametrize("check", [False, True])
def test_records_become_columns(make: MakeDecoder, check: bool) -> None:
    decoder = make()
    table, data = piece(THREE)

    assert decoder.add(table, 0, data, 0, check) == 3
    assert (decoder.state, decoder.rows, decoder.last_seq) == (TAKEN, 3, 9)
    assert decoder.size == sum(len(m.subject + m.headers + m.payload) for m in THREE)
    assert rows_of(decoder) == expected(THREE)
    assert decoder.rows == 0


@pytest.mark.parametrize("check", [ALONE, CHAINED])
def test_records_of_an_atomic_batch_are_checked_as_others_are(make: MakeDecoder, check: int) -> None:
    decoder = make()
    messages = [Stored(1), Stored(2, flags=4), Stored(3, flags=4, is_extended=True), Stored(4)]

    assert decoder.add(*_placed(messages), check) == 4
    assert rows_of(decoder) == expected(messages)
    strange = [Stored(1), Stored(2, flags=2)]  # overwritten, although its entry does not say so
    assert make().add(*_placed(strange), check) == 1


def _placed(messages: list[Stored]) -> tuple[bytes, int, bytes, int]:
    table, data = piece(messages)
    return table, 0, data, 0


def test_pieces_add_up_to_one_batch(make: MakeDecoder) -> None:
    decoder = make()
    for message in THREE:
        decoder.add(*_whole(message), 0, True)

    assert rows_of(decoder) == expected(THREE)


def _whole(message: Stored) -> tuple[bytes, int, bytes]:
    table, data = piece([message])
    return table, 0, data


def test_data_may_begin_anywhere_in_the_segment(make: MakeDecoder) -> None:
    decoder = make()
    table, data = piece(THREE, bytes(1000))

    assert decoder.add(table, 0, memoryview(data)[990:], 990, True) == 3
    assert rows_of(decoder) == expected(THREE)


def test_a_record_alone_is_checked_by_its_own_check(make: MakeDecoder) -> None:
    messages = [
        Stored(1, payload=b"abc"),
        Stored(2, headers=b"NATS/1.0\r\n\r\n"),
        Stored(3, is_extended=True),
    ]
    table, data = piece(messages)
    begin = ENTRY.unpack_from(table)[2]
    for at in range(begin, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x20
        decoder = make()
        found = decoder.add(table, 0, broken, 0, ALONE)
        assert decoder.state == (TAKEN if found == 3 else DAMAGED)
        assert (found == 3) == is_in_checksum(messages, at - begin), at
    decoder = make()
    assert decoder.add(table, 0, data, 0, ALONE) == 3
    assert rows_of(decoder) == expected(messages)


def is_in_checksum(messages: list[Stored], at: int) -> bool:
    """Return whether that byte belongs to a checksum, whose previous one may be missing."""
    behind = 0
    for message in messages:
        behind += len(message.record(0))
        if behind - 8 <= at < behind:
            return True
    return False


def test_a_batch_ends_at_its_rows(make: MakeDecoder) -> None:
    decoder = make(rows_max=2)
    messages = [Stored(seq, payload=b"%d" % seq) for seq in range(1, 6)]
    table, data = piece(messages)

    at = decoder.add(table, 0, data, 0, True)
    assert (at, decoder.state, rows_of(decoder)["data"]) == (2, FULL, [b"1", b"2"])
    at = decoder.add(table, at, data, 0, True)
    assert (at, decoder.state, rows_of(decoder)["data"]) == (4, FULL, [b"3", b"4"])
    at = decoder.add(table, at, data, 0, True)
    assert (at, decoder.state, rows_of(decoder)["data"]) == (5, TAKEN, [b"5"])
    assert decoder.add(table, 5, data, 0, True) == 5


def test_a_batch_ends_before_its_bytes_and_a_larger_message_is_one_alone(make: MakeDecoder) -> None:
    decoder = make(size_max=100)
    sizes = [50, 30, 80, 500, 1]
    table, data = piece([Stored(seq, b"s", b"", b"x" * size) for seq, size in enumerate(sizes, 1)])
    at, batches = 0, []
    while at < 5:
        at = decoder.add(table, at, data, 0, False)
        batches.append(rows_of(decoder)["size"])

    assert batches == [[50, 30], [80], [500], [1]]


def test_the_largest_sequences_are_told_apart(make: MakeDecoder) -> None:
    decoder = make(low=2**63 - 4)
    table, data = piece([Stored(2**63 - 4), Stored(2**63 - 3), Stored(2**63 - 2), Stored(2**63 - 2)])

    assert decoder.add(table, 0, data, 0, True) == 3
    assert rows_of(decoder)["seq"] == [2**63 - 4, 2**63 - 3, 2**63 - 2]


@pytest.mark.parametrize("seqs", [[3, 3], [3, 2], [3, 7], [3, 2**63], [3, 2**64 - 1]])
def test_an_entry_out_of_order_or_range_stops_it(make: MakeDecoder, seqs: list[int]) -> None:
    decoder = make(low=3, high=7)
    table, data = piece([Stored(seq) for seq in seqs])

    assert decoder.add(table, 0, data, 0, False) == 1
    assert (decoder.state, rows_of(decoder)["seq"]) == (WRONG, [3])


def test_an_entry_of_no_message_stops_it(make: MakeDecoder) -> None:
    for flags in (0, 4, 5):
        decoder = make()
        table = ENTRY.pack(1, 0, 0, 0, 0, 0, flags, 0, 0)
        assert decoder.add(table, 0, None, 0, False) == 0
        assert decoder.state == WRONG


def test_what_was_skipped_does_not_come_back(make: MakeDecoder) -> None:
    decoder = make()
    table, data = piece(THREE)
    decoder.add(table, 2, data, 0, False)

    assert decoder.add(table, 0, data, 0, False) == 0
    assert (decoder.state, decoder.last_seq) == (WRONG, 9)


def test_any_changed_byte_of_a_record_is_found(make: MakeDecoder) -> None:
    table, data = piece([FIRST, SECOND, THIRD])
    (_, _, begin, *_), (_, _, end, *_) = (ENTRY.unpack_from(table, at * 40) for at in (1, 2))
    for at in range(begin, end):
        broken = bytearray(data)
        broken[at] ^= 0x40
        decoder = make()
        assert decoder.add(table, 0, broken, 0, True) == 1, at
        assert decoder.state == DAMAGED
        assert decoder.add(table, 2, data, 0, True) == 3
        assert rows_of(decoder) == expected([FIRST, THIRD])


@pytest.mark.parametrize("field", ["seq", "ts", "size", "header_len", "subject_len", "flags"])
def test_an_entry_that_is_not_of_its_record_is_found(make: MakeDecoder, field: str) -> None:
    import numpy as np

    decoder = make()
    table, data = piece([SECOND])
    changed = np.frombuffer(table, entries.ENTRY).copy()
    changed[field] ^= 2

    assert decoder.add(changed.tobytes(), 0, data, 0, True) == 0
    assert decoder.state == DAMAGED


def test_places_outside_of_the_data_are_never_read(make: MakeDecoder) -> None:
    import numpy as np

    table, data = piece(THREE)
    for field, value in (
        ("offset", 2**32 - 1), ("offset", len(data) - 39), ("size", 4000), ("offset", 0), ("header_len", 99)
    ):  # fmt: skip
        changed = np.frombuffer(table, entries.ENTRY).copy()
        changed[field][1] = value
        for check in (False, True):
            decoder = make()
            assert decoder.add(changed.tobytes(), 0, data, 0, check) == 1
            assert (decoder.state, rows_of(decoder)["seq"]) == (DAMAGED, [3])
    decoder = make()
    assert decoder.add(table, 0, data[16:], 16, False) == 0
    assert decoder.state == DAMAGED


@pytest.mark.parametrize(
    "columns", [(), ("seq",), ("size", "seq"), ("data",), ("headers",), ("subject", "ts_ns")]
)
@pytest.mark.parametrize("headers", ["map", "raw", "false"])
def test_only_wanted_columns_are_filled(make: MakeDecoder, columns: tuple[str, ...], headers: str) -> None:
    decoder = make(columns, headers)
    table, data = piece(THREE)
    needed = entries.needs_records(columns, headers)

    decoder.add(table, 0, data if needed else None, 0, False)
    wanted = tuple(name for name in columns if name != "headers" or headers != "false")

    assert decoder.rows == 3
    assert tuple(rows_of(decoder)) == wanted


def test_the_entries_alone_tell_sequence_time_and_size(make: MakeDecoder) -> None:
    decoder = make(("seq", "ts_ns", "size"))
    table, _ = piece(THREE)

    assert decoder.add(table, 0, None, 0, False) == 3
    assert rows_of(decoder) == {name: expected(THREE)[name] for name in ("seq", "ts_ns", "size")}


def test_raw_headers_are_the_block_itself(make: MakeDecoder) -> None:
    decoder = make(headers="raw")
    decoder.add(*_first(piece(THREE)), 0, False)

    assert rows_of(decoder)["headers"] == [None, MAP, THIRD.headers]


def _first(both: tuple[bytes, bytes]) -> tuple[bytes, int, bytes]:
    return both[0], 0, both[1]


def test_columns_outlive_the_decoder_and_later_batches(make: MakeDecoder) -> None:
    decoder = make(rows_max=1)
    table, data = piece([Stored(1, payload=b"first"), Stored(2, payload=b"other")])
    buffer = bytearray(data)
    at = decoder.add(table, 0, buffer, 0, False)
    taken = decoder.take()
    decoder.add(table, at, buffer, 0, False)
    decoder.take()
    buffer[:] = bytes(len(buffer))
    del decoder

    assert values(*taken.columns["data"]) == [b"first"]


text = st.binary(max_size=12)
blocks = st.just(b"") | st.lists(st.builds(lambda a, b: a + b":" + b + b"\r\n", text, text), max_size=5).map(
    lambda lines: b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"
)
drawn = st.lists(
    st.builds(
        Stored,
        seq=st.integers(1, 50),
        subject=st.binary(min_size=1, max_size=40),
        headers=blocks | st.binary(max_size=40),
        payload=st.binary(max_size=60),
        ts=st.integers(-(2**63), 2**63 - 1),
        is_extended=st.booleans(),
    ),
    max_size=8,
)


@given(messages=drawn, rows_max=st.integers(1, 9), cut=st.integers(0, 8))
@settings(max_examples=300, deadline=None)
def test_any_messages_become_what_was_meant(messages: list[Stored], rows_max: int, cut: int) -> None:
    seq = 0
    for message in messages:
        seq = message.seq = seq + message.seq
    table, data = piece(messages)
    for kind in KINDS:
        decoder = kind(ALL, "map", rows_max, 1 << 20)
        decoder.listen(1, FAR)
        batches = []
        for end in (min(cut, len(messages)), len(messages)):
            at = 0 if not batches and not decoder.rows and end <= cut else min(cut, len(messages))
            while at < end:
                at = decoder.add(table[: 40 * end], at, data, 0, True)
                assert decoder.state in (TAKEN, FULL)
                if decoder.state == FULL:
                    batches.append(rows_of(decoder))
        batches.append(rows_of(decoder))
        whole = {name: [value for batch in batches for value in batch[name]] for name in ALL}
        assert whole == expected(messages)


@given(edit=st.integers(0, 400), value=st.integers(0, 255), check=st.booleans())
@settings(max_examples=300, deadline=None)
def test_damaged_entries_stop_both_at_the_same_place(edit: int, value: int, check: bool) -> None:
    table, data = piece(THREE)
    bad = bytearray(table)
    bad[edit % len(bad)] = value
    found = []
    for kind in KINDS:
        decoder = kind(ALL, "map", 100, 1 << 20)
        decoder.listen(1, FAR)
        at = decoder.add(bad, 0, data, 0, check)
        found.append((at, decoder.state, decoder.last_seq, rows_of(decoder)))

    assert found[0] == found[1]


@given(data=st.binary(max_size=200), seed=st.integers(0, 2**64 - 1))
def test_the_compiled_hash_is_the_published_one(data: bytes, seed: int) -> None:
    xxhash = pytest.importorskip("xxhash")

    assert _entries.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)
    assert hashing.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)
