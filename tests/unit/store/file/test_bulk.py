"""Chunks of raw records contain the messages of the store, in every encoding and at every size."""

from __future__ import annotations

import errno
import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bulk import Chunk, Message, decode, record_size
from tests.unit.store.encodings import ENCODINGS, image_of, upkeep

from pyjs.base.disk import OsDisk
from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.store.file.bulk import BulkReader, describe_segments, segment_count
from pyjs.store.file.store import FileStore
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore

KINDS = ["memory", *ENCODINGS]
SUBJECTS = [b"a", b"b", b"a.b", b"a.c", b"x.y.z"]
FILTERS: list[tuple[bytes, ...]] = [(), (b"a",), (b"a.*",), (b">",), (b"b", b"x.>"), (b"nope",)]
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
SEGMENT_SIZE = 4000
PLENTY = 1 << 20


def open_store(kind: str, directory: str = "", segment_size: int = SEGMENT_SIZE) -> StreamStore:
    if kind == "memory":
        return MemStore()
    key, codec = ENCODINGS[kind]
    store = FileStore(OsDisk(), directory, ListLog(), segment_size, incarnation=7, key=key)
    store.compactor.set_codec(codec)
    return store


def settle(store: StreamStore) -> None:
    """Convert sealed segments to their encoding, and compact those that should be compacted."""
    store.flush()
    store.sync_now()
    if isinstance(store, FileStore):
        upkeep(store)


def fill(store: StreamStore, count: int, seed: int = 1) -> None:
    chance = Random(seed)
    for i in range(count):
        headers = HEADERS if chance.random() < 0.3 else b""
        payload = chance.randbytes(chance.choice([0, 1, 20, 300]))
        store.store(chance.choice(SUBJECTS), headers, payload, 1000 + i)
    store.flush()


def expected(store: StreamStore, seq: int, end: int, subjects: tuple[bytes, ...]) -> list[Message]:
    """Return the messages that single reads return."""
    wanted = store.make_filter(subjects)
    found, seq = [], store.catalogue.next_match(seq, wanted)
    while seq and (end == 0 or seq < end):
        message = store.get(seq)
        assert message is not None
        found.append(Message(seq, message.ts, message.subject, message.headers, message.payload))
        seq = store.catalogue.next_match(seq + 1, wanted)
    return found


def read_chunks(
    store: StreamStore,
    seq: int = 1,
    end: int = 0,
    subjects: tuple[bytes, ...] = (),
    size: int = PLENTY,
    chunk_size: int = PLENTY,
    entries_only: bool = False,
    unchecked: bool = False,
) -> list[Chunk]:
    """Read a range as a client does: continue at `next` until the end."""
    chunks: list[Chunk] = []
    while not chunks or not chunks[-1].is_end:
        at = chunks[-1].next if chunks else seq
        reader = BulkReader(store, store.make_filter(subjects), at, end, entries_only, 7, unchecked)
        got = [decode(chunk) for chunk in reader.read(size, chunk_size)]
        assert [chunk.is_last for chunk in got] == [False] * (len(got) - 1) + [True]
        assert got[0].first == at
        chunks += got
        assert len(chunks) < 10_000
    assert all(a.next == b.first for a, b in pairwise(chunks))
    assert chunks[0].first == seq
    return chunks


def messages_of(chunks: list[Chunk]) -> list[Message]:
    return [message for chunk in chunks for message in chunk.messages()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 100, 700, 5000, PLENTY])
def test_chunks_of_any_size_hold_what_single_reads_give(tmp_path: Path, kind: str, size: int) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    # when
    chunks = read_chunks(store, chunk_size=size)
    # then
    assert messages_of(chunks) == expected(store, 1, 0, ())
    assert all(
        len(chunk.entries) == 1 or 64 + 40 * len(chunk.entries) + len(chunk.data) <= size for chunk in chunks
    )
    assert chunks[-1].next == 101
    assert {(chunk.stream_first_seq, chunk.stream_last_seq, chunk.incarnation) for chunk in chunks} == {
        (1, 100, 7)
    }


class Change:
    """One random change to a store."""

    def __init__(self, chance: Random, store: StreamStore) -> None:
        self.chance = chance
        self.store = store

    def __call__(self) -> None:
        chance, store = self.chance, self.store
        what = chance.random()
        seq = chance.randint(0, store.last_seq + 2)
        if what < 0.6:
            fill(store, chance.randint(1, 8), chance.randrange(1 << 30))
        elif what < 0.7:
            store.drop_seq(seq, erase=chance.random() < 0.5)
        elif what < 0.75:
            store.skip_seq()
        elif what < 0.8:
            store.purge(store.make_filter(chance.choice(FILTERS)), keep=chance.randint(0, 3))
        elif what < 0.85:
            store.purge(store.make_filter(()), before_seq=seq)
        elif what < 0.9:
            settle(store)
        elif what < 0.95:
            for at in range(seq, seq + 12):
                store.drop_seq(at)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KINDS), seed=st.integers(0, 1 << 30))
def test_whatever_happened_to_a_store_chunks_hold_what_single_reads_give(
    data: st.DataObject, kind: str, seed: int
) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        # given
        store = open_store(kind, directory + "/s")
        change = Change(chance, store)
        for _ in range(data.draw(st.integers(1, 60), "changes")):
            change()
        subjects = data.draw(st.sampled_from(FILTERS), "subjects")
        low = data.draw(st.integers(1, store.last_seq + 3), "seq")
        end = data.draw(st.one_of(st.just(0), st.integers(low, store.last_seq + 5)), "end")
        # when
        chunks = read_chunks(
            store,
            low,
            end,
            subjects,
            data.draw(st.sampled_from([1, 900, 5000, PLENTY]), "size"),
            data.draw(st.sampled_from([1, 150, 600, 3000, PLENTY]), "chunk size"),
        )
        # then
        assert messages_of(chunks) == expected(store, low, end, subjects)
        assert sum(chunk.lost for chunk in chunks) == 0
        assert chunks[-1].next == max(low, min(end or store.last_seq + 1, store.last_seq + 1))
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_behind_the_end_is_one_empty_chunk(tmp_path: Path, kind: str) -> None:
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 5)
    for seq, end in ((6, 0), (6, 9), (900, 0), ((1 << 64) - 1, 0), (3, 3)):
        (chunk,) = read_chunks(store, seq, end)
        assert (chunk.first, chunk.next, chunk.entries, chunk.flags) == (seq, seq, (), 3)


def test_an_empty_store_is_one_empty_chunk() -> None:
    (chunk,) = read_chunks(MemStore())
    assert (chunk.first, chunk.next, chunk.stream_last_seq, chunk.flags) == (1, 1, 0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_written_yet_is_served(tmp_path: Path, kind: str) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"), PLENTY)
    fill(store, 3)
    store.store(b"a", b"", b"staged", 5)
    # then
    assert messages_of(read_chunks(store))[-1] == Message(4, 5, b"a", b"", b"staged")


def test_subject_ids_tell_subjects_apart(tmp_path: Path) -> None:
    # given
    store = open_store("plain", str(tmp_path / "s"))
    fill(store, 200)
    settle(store)
    store.close()
    store = open_store("plain", str(tmp_path / "s"))
    # when
    for chunk in read_chunks(store):
        pairs = {
            (entry.subject_id, message.subject)
            for entry, message in zip(chunk.entries, chunk.messages(), strict=True)
        }
        # then
        assert len({number for number, _ in pairs}) == len({subject for _, subject in pairs}) == len(pairs)


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_entries_alone_lead_into_the_files(tmp_path: Path, kind: str) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 150)
    for seq in range(20, 60, 2):
        store.drop_seq(seq)
    settle(store)
    assert isinstance(store, FileStore)
    # when
    chunks = read_chunks(store, entries_only=True)
    found = []
    for chunk in chunks:
        image = image_of(store.files.disk, Path(store.files.path_of(chunk.segment)), store.files.key)
        assert chunk.flags & 4
        assert chunk.data == b""
        found += [
            Message(
                entry.seq, entry.ts, *_fields(image[entry.offset : entry.offset + record_size(entry)], entry)
            )
            for entry in chunk.entries
        ]
    # then
    assert found == expected(store, 1, 0, ())
    assert len({chunk.segment for chunk in chunks}) == len(store.segment_paths())


def _fields(record: bytes, entry: object) -> tuple[bytes, bytes, bytes]:
    subject_len, header_len = entry.subject_len, entry.header_len  # type: ignore[attr-defined]
    subject, body = record[32 : 32 + subject_len], record[32 + subject_len : -8]
    return subject, body[:header_len], body[header_len:]


def test_a_message_larger_than_a_chunk_comes_alone() -> None:
    # given
    store = MemStore()
    for size in (10, 5000, 10):
        store.store(b"a", b"", b"x" * size, 1)
    # then
    assert [len(chunk.entries) for chunk in read_chunks(store, chunk_size=500)] == [1, 1, 1]


def test_a_request_is_answered_with_about_as_much_as_it_asks_for() -> None:
    # given
    store = MemStore()
    for _ in range(1000):
        store.store(b"a", b"", b"x" * 100, 1)
    # when
    reader = BulkReader(store, store.make_filter(()), 1, 0)
    sizes = [len(chunk) for chunk in reader.read(50_000, 10_000)]
    # then
    assert max(sizes) <= 10_000
    assert 45_000 <= sum(sizes) <= 50_000


def test_a_filter_that_lets_nothing_through_ends_a_request_before_it_takes_long() -> None:
    # given
    store = MemStore()
    for _ in range(400_000):
        store.store(b"a", b"", b"", 1)
    store.store(b"b", b"", b"", 1)
    # when
    (chunk,) = (
        decode(each) for each in BulkReader(store, store.make_filter([b"b"]), 1, 0).read(PLENTY, PLENTY)
    )
    # then
    assert chunk.entries == ()
    assert chunk.flags == 1
    assert 10_000 < chunk.next < 400_000
    assert [message.seq for message in messages_of(read_chunks(store, subjects=(b"b",)))] == [400_001]


def test_many_filters_and_subjects_end_a_request_before_it_takes_long() -> None:
    # given
    store = MemStore()
    for at in range(3000):
        store.store(b"s.%d" % at, b"", b"", 1)
    filters = [b"s.%d" % at for at in range(2000, 3000)]
    # when
    (chunk,) = (
        decode(each) for each in BulkReader(store, store.make_filter(filters), 1, 0).read(PLENTY, PLENTY)
    )
    # then
    assert (chunk.entries, chunk.flags) == ((), 1)
    assert 10 < chunk.next < 500
    assert len(messages_of(read_chunks(store, subjects=tuple(filters)))) == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_segments_are_described(tmp_path: Path, kind: str) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    # when
    rows = describe_segments(store, 0, 1000)
    # then
    assert len(rows) == segment_count(store)
    assert sum(row["messages"] for row in rows) == 100
    assert sum(row["bytes"] for row in rows) == store.bytes
    assert (rows[0]["first_seq"], rows[-1]["last_seq"]) == (1, 100)
    assert all(a["last_seq"] + 1 == b["first_seq"] for a, b in pairwise(rows))
    assert (rows[0]["first_ts"], rows[-1]["last_ts"]) == (1000, 1099)
    assert describe_segments(store, 1, 1) == rows[1:2]
    assert describe_segments(store, len(rows) + 5, 5) == []
    if isinstance(store, FileStore):
        assert [row["sealed"] for row in rows] == [True] * (len(rows) - 1) + [False]
        images = [image_of(store.files.disk, Path(path), store.files.key) for path in store.segment_paths()]
        assert [row["file_bytes"] for row in rows][:-1] == [len(image) for image in images][:-1]


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 1 << 30), subjects=st.sampled_from(FILTERS))
def test_between_two_requests_anything_may_happen(kind: str, seed: int, subjects: tuple[bytes, ...]) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        # given
        store = open_store(kind, directory + "/s")
        fill(store, 60, seed)
        change = Change(chance, store)
        seq = 1
        for _ in range(30):
            # when
            change()
            reader = BulkReader(store, store.make_filter(subjects), seq, 0)
            chunks = [
                decode(chunk) for chunk in reader.read(chance.choice([1, 2000]), chance.choice([300, 900]))
            ]
            # then
            assert messages_of(chunks) == expected(store, seq, chunks[-1].next, subjects)
            seq = chunks[-1].next
        store.close()


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_damaged_messages_are_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    whole = expected(store, 1, 0, ())
    assert isinstance(store, FileStore)
    path = Path(store.segment_paths()[1])
    store.maps.drop_maps()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    # when
    chunks = read_chunks(store, chunk_size=2000)
    # then
    found = messages_of(chunks)
    assert found == expected(store, 1, 0, ())
    assert [message for message in whole if message in found] == found
    assert 0 < sum(chunk.lost for chunk in chunks) == 100 - len(found) == store.lost[0]  # type: ignore[index]
    assert all(chunk.flags == 1 for chunk in chunks if chunk.lost)
    assert sum(chunk.lost for chunk in read_chunks(store)) == 0
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_reader_checks_is_the_same_when_nothing_is_damaged(tmp_path: Path, kind: str) -> None:
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    assert [chunk.data for chunk in read_chunks(store, unchecked=True)] == [
        chunk.data for chunk in read_chunks(store)
    ]


def test_a_reader_that_checks_gets_damaged_records_as_they_are_until_it_asks_for_checked_ones(
    tmp_path: Path,
) -> None:
    store = open_store("plain", str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    assert isinstance(store, FileStore)
    path = Path(store.segment_paths()[1])
    store.maps.drop_maps()
    data = bytearray(path.read_bytes())
    at = data.rindex(b"NATS/1.0") if b"NATS/1.0" in data else len(data) // 2
    data[at] ^= 0x01
    path.write_bytes(data)
    assert sum(chunk.lost for chunk in read_chunks(store, unchecked=True)) == 0
    assert store.examiner.losses.msgs == 0
    assert sum(chunk.lost for chunk in read_chunks(store)) == store.examiner.losses.msgs == 1
    assert messages_of(read_chunks(store, unchecked=True)) == expected(store, 1, 0, ())
    store.close()


class NoFiles(OsDisk):
    """Opens nothing while `none` is set, as if file descriptors had run out."""

    none = False

    def open_read_only(self, path: str) -> int:
        if self.none:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open_read_only(path)


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_what_cannot_be_read_now_ends_a_request_and_is_no_loss(tmp_path: Path, kind: str) -> None:
    # given
    key, codec = ENCODINGS[kind]
    disk = NoFiles()
    store = FileStore(disk, str(tmp_path / "s"), ListLog(), SEGMENT_SIZE, key=key)
    store.compactor.set_codec(codec)
    fill(store, 100)
    settle(store)
    store.maps.drop_maps()
    (first, *_) = BulkReader(store, store.make_filter(()), 1, 2).read(PLENTY, PLENTY)
    assert decode(first).flags == 3
    disk.none = True
    # when
    reader = BulkReader(store, store.make_filter(()), 50, 0)
    with pytest.raises(NotNow, match="message 50 cannot be read now"):
        reader.read(PLENTY, PLENTY)
    # then
    disk.none = False
    assert [message.seq for message in messages_of(read_chunks(store, 50))] == list(range(50, 101))
    assert store.lost is None


@pytest.mark.parametrize("kind", [kind for kind in ENCODINGS if kind != "plain"])
def test_views_that_are_pushed_out_while_a_chunk_is_composed_do_not_spoil_it(
    tmp_path: Path, kind: str
) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 300)
    settle(store)
    wanted = expected(store, 1, 0, ())
    assert isinstance(store, FileStore)
    assert len(store.segment_paths()) > 6
    store.maps.drop_maps()
    store.maps.view_cache.held_max = 1
    # then
    assert messages_of(read_chunks(store)) == wanted
    store.close()


@pytest.mark.parametrize("kind", [kind for kind in ENCODINGS if kind != "plain"])
def test_a_bulk_read_leaves_no_view_of_a_segment_that_it_has_passed(tmp_path: Path, kind: str) -> None:
    # given
    store = open_store(kind, str(tmp_path / "s"))
    fill(store, 100)
    settle(store)
    assert isinstance(store, FileStore)
    store.maps.drop_maps()
    store.get(1)
    # when
    read_chunks(store, chunk_size=1000)
    # then
    assert len(store.maps.view_cache) == 1, "that of the first segment was there already"
    store.close()


def test_rewritten_segments_are_read_where_they_are_now(tmp_path: Path) -> None:
    # given
    store = open_store("plain", str(tmp_path / "s"), 100_000)
    for _ in range(1000):
        store.store(b"a", b"", b"x" * 200, 1)
    settle(store)
    read_chunks(store)
    for seq in range(1, 1000):
        if seq % 10:
            store.drop_seq(seq)
    # when
    settle(store)
    # then
    assert messages_of(read_chunks(store)) == expected(store, 1, 0, ())
    store.close()


def test_the_documented_chunk_is_the_one_that_the_documented_segment_gives(tmp_path: Path) -> None:
    # given
    documents = Path(__file__).parents[4] / "docs"
    text = (documents / "bulk-read.md").read_text().partition("### Example\n")[2].split("```")[1]
    shown = bytes.fromhex("".join(line.partition("  ")[0] for line in text.splitlines()))
    segment = (
        (documents / "storage-format.md").read_text().partition("### Example of a segment")[2].split("```")[1]
    )
    (tmp_path / "00000001.seg").write_bytes(bytes.fromhex(segment))
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), 1 << 20, 7)
    # when
    (chunk,) = BulkReader(store, store.make_filter(()), 1, 0, False, 7).read(PLENTY, PLENTY)
    # then
    assert chunk == shown
    assert decode(shown).messages() == [Message(1, 1_700_000_000_000_000_000, b"a.b", b"", b"hi")]
    store.close()
