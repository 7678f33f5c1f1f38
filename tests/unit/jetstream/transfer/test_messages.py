"""The messages of an archive are read from a store and appended to one, many at a time."""

from __future__ import annotations

import random

import pytest

from pyjs.archive.entries import END, MAGIC, encode
from pyjs.archive.entry_reader import EntryReader
from pyjs.jetstream.transfer.messages import append_messages, read_messages
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore

PLAIN = encode(b"s.a", 5, 1, b"", b"bread")
ALL = 1 << 30


def filled(count: int) -> StreamStore:
    """Return a store with messages of all sizes, and with gaps."""
    store, rng = MemStore(), random.Random(7)
    for number in range(count):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % number if number % 3 == 0 else b""
        store.store(b"s.%d" % (number % 7), headers, rng.randbytes(rng.choice([0, 1, 200, 70_000])), number)
    for seq in range(1, count, 5):
        store.drop_seq(seq)
    return store


def entries_of(store: StreamStore) -> list[bytes]:
    found = [store.get(seq) for seq in range(1, store.last_seq + 1)]
    return [encode(m.subject, m.ts, m.seq, m.headers, m.payload) for m in found if m is not None]


def reader_of(*entries: bytes) -> EntryReader:
    reader = EntryReader(ALL)
    reader.add(MAGIC + b"".join(entries))
    return reader


@pytest.mark.parametrize(("limit", "size"), [(1, ALL), (7, ALL), (ALL, 1), (ALL, 100_000)])
def test_a_store_is_read_in_parts_of_any_size(limit: int, size: int) -> None:
    # given
    store, parts, seq = filled(100), [], 1
    # when
    while seq:
        part, seq = read_messages(store, seq, store.last_seq, limit, size)
        parts.append(bytes(part))
    # then
    assert b"".join(parts) == b"".join(entries_of(store))


def test_later_messages_are_left_out() -> None:
    store = filled(20)
    part, seq = read_messages(store, 1, 3, ALL, ALL)
    assert (bytes(part), seq) == (b"".join(entries_of(store)[:2]), 0)


def test_an_empty_store_has_no_messages() -> None:
    assert read_messages(MemStore(), 1, 0, ALL, ALL) == (b"", 0)


def test_what_was_read_is_appended_with_its_sequences() -> None:
    # given
    store, copy = filled(100), MemStore()
    reader = reader_of(*entries_of(store))
    # when
    sizes = [
        append_messages(copy, reader, ALL, True, 100, 1),
        append_messages(copy, reader, ALL, True, 100, ALL),
    ]
    # then
    assert entries_of(copy) == entries_of(store)
    assert sizes == [len(entries_of(store)[0]), sum(map(len, entries_of(store)[1:]))]


@pytest.mark.parametrize(
    "odd",
    [
        encode(b"s.a", 5, 1, b"", b""),  # its sequence is not after the previous one
        encode(b"s.a", -1, 2, b"", b""),
        encode(b"s.*", 5, 2, b"", b""),
        encode(b"s..a", 5, 2, b"", b""),
        encode(b"s" * 101, 5, 2, b"", b""),
        encode(b"s.a", 5, 2, b"", b"x" * 1001),
        encode(b"s.a", 5, 2, b"NATS/1.0\r\n\r", b""),
        encode(b"s.a", 5, 2, b"NATS/1.1\r\n\r\n", b""),
        encode(b"s.a", 5, 2, b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b""),
        encode(b"s.a", 5, 2, b"", b"cake")[:-1],
        encode(END.name, END.ts, END.seq, END.headers, END.payload),
    ],
)
def test_it_stops_before_an_entry_that_the_caller_must_look_at(odd: bytes) -> None:
    # given
    store, reader = MemStore(), reader_of(PLAIN, odd)
    # when
    size = append_messages(store, reader, 1000, True, 100, ALL)
    # then
    assert (size, store.msgs, store.last_seq) == (len(PLAIN), 1, 1)
    assert append_messages(store, reader, 1000, True, 100, ALL) == 0
    reader.add(b"e")
    assert reader.next() is not None


def test_a_ttl_counts_only_where_the_stream_allows_it() -> None:
    store = MemStore()
    reader = reader_of(encode(b"s.a", 5, 2, b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b""))
    append_messages(store, reader, 1000, False, 100, ALL)
    assert store.msgs == 1
