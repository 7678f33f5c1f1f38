"""Store directories that are damaged, incomplete, moved or in use.

Long because all tests use the same hand-made store.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, our_command_from_anywhere
from spark.tests.support.archived import archive_here
from spark.tests.support.records import DELETES, FOOTER, STATE, Stored, header, other, tail
from tests.conformance.harness.process import ServerProcess
from tests.unit.store.segment_files import IndexWriter, index_of

arrow_or_skip()
msgpack = pytest.importorskip("msgpack")

import pyarrow as pa

from pyjs_spark.cli.main import main
from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.errors import BadStore, DataLoss, StoreKeyNeeded, StreamMissing
from pyjs_spark.lake import lakes
from pyjs_spark.options.reading import parse_options
from pyjs_spark.read import files as reader
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.pushdown import Bounds
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.store import scan, snapshot
from pyjs_spark.store.place import StoreDirectory

INCARNATION = 7
CREATED = "1970-01-01T00:00:00.000000007Z"
FAR = 10**6


@pytest.fixture(params=["compiled", "pure"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read records with the compiled code, and with plain Python."""
    snapshot._remembered.clear()
    if request.param == "pure":
        monkeypatch.setattr(scan, "walk", None)


class Store:
    """A store directory with one stream S, written by the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stream = root / "jetstream" / "$G" / "streams" / "S"
        (self.stream / "msgs").mkdir(parents=True)
        self.write_meta("a")
        self.place = StoreDirectory(str(root))

    def write_meta(self, copy: str, version: int = 1, retention: str = "limits") -> None:
        body = msgpack.packb({"created_ns": INCARNATION, "config": {"name": "S", "retention": retention}})
        data = struct.pack("<8sHBBBBHIIQ", b"PYJSMETA", version, 1, 0, 0, 1, 0, len(body), 0, 1) + body
        (self.stream / f"meta.{copy}").write_bytes(data + xxh64(data, 0).to_bytes(8, "little"))

    def path(self, number: int) -> Path:
        return self.stream / "msgs" / f"{number:08d}.seg"

    def segment(
        self, number: int, *seqs: int, footer: bool = True, end: bytes = b"", **fields: Any
    ) -> bytearray:
        """Write a segment of messages with these sequences; return its bytes."""
        data = bytearray(header(seqs[0], number))
        for seq in seqs:
            data += Stored(seq, b"s.%d" % (seq % 3), payload=b"message %d" % seq, **fields).record(tail(data))
        if footer:
            body = (seqs[0], seqs[-1], len(seqs), 0, 0, len(data))
            data += other(FOOTER, seqs[-1], body, tail(data))
        data += end
        self.path(number).write_bytes(data)
        return data

    def append(self, number: int, kind: int, seq: int, *numbers: int, flags: int = 0) -> None:
        data = self.path(number).read_bytes()
        self.path(number).write_bytes(data + other(kind, seq, numbers, tail(data), flags))

    def read(self, low: int = 1, high: int = FAR, **given: Any) -> tuple[list[int], int]:
        """Return the sequences that were read, and the number of lost ones."""
        report = Report()
        fields = {"columns": ("seq", "data"), "fail_on_data_loss": False} | given
        batches = reader.read_range(self.place, ReadRange("S", low, high, **fields), report)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert all(row.get("data", b"message %d" % row["seq"]) == b"message %d" % row["seq"] for row in rows)
        return [row["seq"] for row in rows], report.lost

    def damage(self, number: int, at: int, by: int = 1) -> None:
        data = bytearray(self.path(number).read_bytes())
        data[at] ^= by
        self.path(number).write_bytes(data)

    def refusal(self) -> str:
        """Return why nothing is read, which is refused even if losses are allowed."""
        with pytest.raises(BadStore) as caught:
            self.read()
        assert f"pyjs-server fsck {self.root}/jetstream" in str(caught.value)
        return str(caught.value)

    def whole_or_refusal(self, seqs: list[int]) -> str:
        """Check that everything is read, or return why nothing is."""
        try:
            assert self.read() == (seqs, 0)
        except BadStore as error:
            return str(error)
        return ""

    def plan(self, **options: str) -> Planner:
        parsed = parse_options({"path": str(self.root), "stream": "S", **options})
        return Planner(parsed, api_of(parsed), 2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def place_of_record(data: bytes, number: int) -> tuple[int, int]:
    """Return the offsets of the start and end of record `number`."""
    at = 64
    for _ in range(number):
        at += int.from_bytes(data[at : at + 4], "little")
    return at, at + int.from_bytes(data[at : at + 4], "little")


def test_a_stream_that_is_deleted_under_the_reader_is_a_loss(store: Store) -> None:
    def reading(fail: bool, report: Report) -> Iterator[pa.RecordBatch]:
        store.write_meta("a")
        for number in range(3):
            store.segment(number + 1, *range(5 * number + 1, 5 * number + 6), footer=number < 2)
        what = ReadRange("S", 1, 16, created=CREATED, bulk_batch_rows=2, fail_on_data_loss=fail)
        found = reader.read_range(store.place, what, report)
        yield next(found)
        shutil.rmtree(store.stream)
        yield from found

    report = Report()
    with pytest.raises(DataLoss, match="it was deleted since the read was planned"):
        list(reading(True, Report()))
    (store.stream / "msgs").mkdir(parents=True)
    rows = [row["seq"] for batch in reading(False, report) for row in batch.to_pylist()]

    assert rows == list(range(1, len(rows) + 1))
    assert report.lost == 15 - len(rows)


def test_a_stream_without_the_directory_of_its_segments_is_told(store: Store) -> None:
    shutil.rmtree(store.stream / "msgs")

    with pytest.raises(BadStore, match="msgs: the directory of the stream's segments is missing; restore it"):
        store.read()


# -- what is whole --------------------------------------------------------------------------------------------------


def test_segments_follow_each_other(store: Store) -> None:
    store.segment(1, 1, 2, 3)
    store.segment(2, 4, 5, footer=False, end=bytes(5000))

    assert store.read() == ([1, 2, 3, 4, 5], 0)
    assert store.read(2, 5) == ([2, 3, 4], 0)
    assert store.read(columns=("seq",)) == ([1, 2, 3, 4, 5], 0)


def test_sequences_without_records_are_no_loss(store: Store) -> None:
    store.segment(1, 2, 5, 9)
    store.segment(7, 20, 22, footer=False)

    assert store.read(2) == ([2, 5, 9, 20, 22], 0)


def test_removals_and_the_first_sequence_hold_for_all_segments(store: Store) -> None:
    store.segment(1, 1, 2, 3, 4, 5)
    store.segment(2, 6, 7, footer=False)
    store.append(2, DELETES, 7, 4)
    store.append(2, STATE, 8, 3, 0)

    assert store.read(3) == ([3, 5, 6, 7], 0)
    info = api_of(parse_options({"path": str(store.root), "stream": "S"})).api("STREAM.INFO.S")
    assert (info["state"]["first_seq"], info["state"]["last_seq"], info["state"]["messages"]) == (3, 8, 4)


def purge_file(store: Store, subject: Any, before_seq: Any, version: int = 1) -> None:
    body = msgpack.packb({"subject": subject, "before_seq": before_seq})
    data = struct.pack("<8sHBBBBHIIQ", b"PYJSMETA", version, 5, 0, 0, 1, 0, len(body), 0, 1) + body
    (store.stream / "purge").write_bytes(data + xxh64(data, 0).to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("subject", "before_seq", "left"),
    [
        ("", 8, [8, 9, 10]),
        ("", 2**64 - 1, []),
        ("s.0", 8, [1, 2, 4, 5, 7, 8, 9, 10]),
        ("s.*", 3, [3, 4, 5, 6, 7, 8, 9, 10]),
        ("other.>", 8, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_store_copied_in_the_middle_of_a_purge_is_read_as_after_the_next_start(
    store: Store, subject: str, before_seq: int, left: list[int], is_indexed: bool
) -> None:
    for number, seqs in ((1, range(1, 6)), (2, range(6, 11))):
        data = store.segment(number, *seqs)
        if is_indexed:
            store.path(number).with_suffix(".idx").write_bytes(index_of(bytes(data)))
    purge_file(store, subject, before_seq)
    assert store.read(low=min(left, default=11)) == (left, 0)


def hidden(writer: IndexWriter) -> None:
    writer.first_seq = 5


def removed_more(writer: IndexWriter) -> None:
    writer.removals.append(2)


def began_between(writer: IndexWriter) -> None:
    for number, (at, size) in ((1, (0, -3)), (2, (-3, 3))):
        entry = bytearray(writer.entries[number])
        struct.pack_into("<I", entry, 16, struct.unpack_from("<I", entry, 16)[0] + at)
        struct.pack_into("<I", entry, 20, struct.unpack_from("<I", entry, 20)[0] + size)
        writer.entries[number] = bytes(entry)


@pytest.mark.parametrize("lie", [hidden, removed_more, began_between])
def test_an_index_file_that_says_something_else_than_its_segment_costs_nothing(
    store: Store, lie: Callable[[IndexWriter], None]
) -> None:
    for number, seqs in ((1, range(1, 6)), (2, range(6, 11))):
        data = store.segment(number, *seqs)
        writer = IndexWriter(bytes(data))
        if number == 1:
            lie(writer)
        store.path(number).with_suffix(".idx").write_bytes(writer.data())
    assert store.read() == ([*range(1, 11)], 0)


@pytest.mark.parametrize("size", [0, 30])
def test_a_purge_file_that_was_just_made_means_nothing(store: Store, size: int) -> None:
    store.segment(1, *range(1, 6))
    (store.stream / "purge").write_bytes(bytes(size))
    assert store.read() == ([1, 2, 3, 4, 5], 0)


def test_no_changed_byte_of_a_purge_file_brings_messages_back(store: Store) -> None:
    store.segment(1, *range(1, 6))
    purge_file(store, "", 4)
    path = store.stream / "purge"
    data = path.read_bytes()
    for broken in (
        data[:-1],
        *(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(len(data))),
    ):
        path.write_bytes(broken)
        assert "purge is damaged or incomplete" in store.refusal()


@pytest.mark.parametrize(("subject", "before_seq"), [(5, 4), ("", 0), ("", -1), ("", "x"), (None, None)])
def test_a_purge_file_that_does_not_say_what_is_purged_is_refused(
    store: Store, subject: Any, before_seq: Any
) -> None:
    store.segment(1, *range(1, 6))
    purge_file(store, subject, before_seq)
    assert "purge is damaged or incomplete" in store.refusal()


def test_a_purge_file_of_a_newer_server_is_refused(store: Store) -> None:
    store.segment(1, *range(1, 6))
    purge_file(store, "", 4, version=9)
    with pytest.raises(BadStore, match="purge was written by a newer server"):
        store.read()


@pytest.mark.parametrize("subject", [b"a b", b"a\r\n", b"a\rb", b"\t", b""])
def test_a_subject_that_would_end_in_a_protocol_line_is_damage_as_for_the_server(
    store: Store, subject: bytes
) -> None:
    data = bytearray(header(1))
    for seq, each in ((1, b"s.1"), (2, subject), (3, b"s.3")):
        data += Stored(seq, each, payload=b"message %d" % seq).record(tail(data))
    data += other(FOOTER, 3, (1, 3, 3, 0, 0, len(data)), tail(data))
    store.path(1).write_bytes(data)
    assert "a subject that no client can send" in store.refusal()
    store.path(1).with_suffix(".idx").write_bytes(index_of(bytes(data)))
    assert "a subject that no client can send" in store.refusal()


@pytest.mark.parametrize("subject", [b"a\0", b"\x01", b"s.\x0b.\x0c", b"\x1f\x7f", b"s.*", b"s.>"])
def test_a_subject_that_a_client_can_publish_to_is_read(store: Store, subject: bytes) -> None:
    data = header(1)
    data += Stored(1, subject, payload=b"message 1").record(tail(data))
    store.path(1).write_bytes(data)
    assert store.read() == ([1], 0)


def test_subjects_are_filtered_with_and_without_a_dictionary(store: Store) -> None:
    store.segment(1, *range(1, 10))

    assert store.read(subjects=("s.1",)) == ([1, 4, 7], 0)
    assert store.read(subjects=("s.1", "*.2")) == ([1, 2, 4, 5, 7, 8], 0)
    assert store.read(subjects=("s.>",))[0] == list(range(1, 10))
    assert store.read(subjects=("s",)) == ([], 0)
    assert [(span.low, span.high) for span in store.plan(subjects="s.2").batch(Bounds())] == [(1, 10)]


def test_batches_go_over_segments(store: Store) -> None:
    store.segment(1, 1, 2, 3)
    store.segment(2, 4, 5, 6)

    what = ReadRange("S", 1, 7, columns=("seq",), bulk_batch_rows=4)
    assert [batch.num_rows for batch in reader.read_range(store.place, what)] == [4, 2]


def test_metadata_of_one_copy_is_enough(store: Store) -> None:
    store.segment(1, 1)
    store.write_meta("b")
    (store.stream / "meta.a").write_bytes(b"damaged")

    assert store.read() == ([1], 0)


# -- what is damaged ------------------------------------------------------------------------------------------------


ALL = [1, 3, 4, 5]


def small(store: Store) -> list[Path]:
    """Make a store of three segments, of which one has an index file and two have removals; return its files."""
    data = store.segment(1, 1, 2)
    store.path(1).with_suffix(".idx").write_bytes(index_of(bytes(data)))
    store.segment(2, 3, footer=False)
    store.append(2, DELETES, 3, 2)
    store.append(2, FOOTER, 3, 3, 3, 1, 0, 0, len(store.path(2).read_bytes()))
    store.segment(3, 4, 5, 6, footer=False)
    store.append(3, STATE, 6, 1, 0)
    store.append(3, DELETES, 6, 6)
    return sorted(path for path in store.stream.rglob("*") if path.is_file())


def test_a_store_with_any_changed_byte_is_refused_or_read_as_if_it_were_whole(store: Store) -> None:
    reserved = 5000 if scan.walk is None else 0  # a killed server leaves reserved zeros at the end
    files = small(store)
    store.path(3).write_bytes(store.path(3).read_bytes() + bytes(reserved))
    assert store.read() == (ALL, 0)
    refused = 0
    for path in files:
        data = path.read_bytes()
        for at in range(len(data.rstrip(b"\0"))):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            snapshot._remembered.clear()
            said = store.whole_or_refusal(ALL)
            assert not said or (path.name.removesuffix(".a") in said and "fsck" in said), (
                path.name,
                at,
                said,
            )
            refused += bool(said)
        path.write_bytes(data)
    assert refused > 500


def test_a_removal_with_two_changed_bytes_is_refused(store: Store) -> None:
    store.segment(1, 1, 2, 3)
    store.segment(2, 4, 5, footer=False)
    store.append(2, DELETES, 5, 2)
    store.append(2, STATE, 5, 1, 0)
    begin, _ = place_of_record(store.path(2).read_bytes(), 2)
    store.damage(2, begin + 32)
    store.damage(2, begin + 34)

    assert f"00000002.seg is damaged at byte {begin}: a record is damaged" in store.refusal()


def test_a_damaged_store_is_refused_whatever_part_of_it_is_read(store: Store) -> None:
    store.segment(1, 1, 2, 3, 4)
    store.damage(1, place_of_record(store.path(1).read_bytes(), 2)[0] + 36)

    for low, high in ((1, 3), (4, 5)):
        with pytest.raises(BadStore, match=r"00000001\.seg is damaged at byte"):
            store.read(low, high)
    with pytest.raises(BadStore, match="fsck"):
        store.plan().batch(Bounds())


def test_a_write_that_was_cut_short_is_no_loss(store: Store) -> None:
    data = store.segment(1, 1, 2, footer=False)
    whole = Stored(3, payload=b"x" * 100).record(tail(data))
    for cut in (1, 8, 39):
        store.path(1).write_bytes(data + whole[:cut])
        snapshot._remembered.clear()
        assert store.read() == ([1, 2], 0)


def test_a_write_that_was_cut_at_a_page_after_zeros_of_its_own_is_no_loss(store: Store) -> None:
    data = store.segment(1, 1, 2, footer=False)
    room = 4096 - len(data) - 32 - len(b"orders.new")
    whole = Stored(3, payload=b"x" * (room - 300) + bytes(300) + b"z" * 500).record(tail(data))
    store.path(1).write_bytes((data + whole)[:4096] + bytes(8192))
    assert store.read() == ([1, 2], 0)
    store.path(1).write_bytes((data + whole)[:3900])
    assert "a record is damaged" in store.refusal()


@pytest.mark.parametrize("kept", range(1, 8))
def test_a_write_that_was_cut_within_its_checksum_is_no_loss(store: Store, kept: int) -> None:
    data = store.segment(1, 1, 2, footer=False)
    room = 4096 - len(data) - 40 - len(b"orders.new") + 8 - kept
    whole = Stored(3, payload=b"x" * room).record(tail(data))
    assert len(data) + len(whole) == 4096 + 8 - kept
    store.path(1).write_bytes((data + whole)[:4096] + bytes(8192))
    assert store.read() == ([1, 2], 0)
    damaged = bytearray(data + whole)
    damaged[4000] ^= 1
    store.path(1).write_bytes(damaged[:4096] + bytes(8192))
    assert "a record is damaged" in store.refusal()


def test_a_write_that_was_cut_short_has_no_whole_record_in_it(store: Store) -> None:
    data = store.segment(1, 1, 2, footer=False)
    whole = Stored(3, payload=b"message 3").record(tail(data))
    wrong_length = (5000).to_bytes(4, "little") + whole[4:]
    for after in (b"", Stored(4, payload=b"message 4").record(tail(whole))):
        store.path(1).write_bytes(data + wrong_length + after + bytes(8192))
        assert "a record is damaged" in store.refusal()


def test_a_batch_that_was_cut_short_is_nothing_and_a_whole_one_is_read(store: Store) -> None:
    store.segment(1, 1, 2, footer=False)
    data = store.path(1).read_bytes()
    for seq in (3, 4):
        data += Stored(seq, payload=b"message %d" % seq, flags=4).record(tail(data))
    store.path(1).write_bytes(data)
    assert store.read() == ([1, 2], 0)
    store.path(1).write_bytes(data + Stored(5, payload=b"message 5").record(tail(data)))
    assert store.read() == ([1, 2, 3, 4, 5], 0)


def test_a_segment_whose_end_is_missing_before_another_is_refused(store: Store) -> None:
    store.segment(1, 1, 2, footer=False)
    store.segment(2, 5, 6)

    assert "00000001.seg is damaged: its end is missing" in store.refusal()


def test_a_segment_that_is_missing_or_cut_is_refused_by_its_index_file(store: Store) -> None:
    data = store.segment(1, 1, 2, 3, footer=False)
    store.path(1).with_suffix(".idx").write_bytes(index_of(bytes(data)))
    begin, _ = place_of_record(bytes(data), 2)
    store.path(1).write_bytes(data[:begin])
    assert f"00000001.seg is damaged at byte {begin}: its end is missing, up to sequence 3" in store.refusal()
    store.path(1).write_bytes(b"")
    assert "it is empty; its index file is not" in store.refusal()
    store.path(1).unlink()
    assert "00000001.seg is missing; its index file is there" in store.refusal()
    store.segment(2, 4, footer=False)
    store.append(2, STATE, 4, 4, 0)
    assert store.read(4) == ([4], 0)  # the missing messages were removed, not lost


def test_a_segment_that_repeats_sequences_is_refused(store: Store) -> None:
    store.segment(1, 1, 2)
    store.segment(2, 2, 3)

    assert "00000002.seg is damaged at byte 0: it repeats sequences" in store.refusal()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_file_of_which_nothing_can_be_read_is_refused(store: Store, is_last: bool) -> None:
    store.segment(1, 1, 2)
    store.path(2).write_bytes(b"\xaa" * 3000)
    if not is_last:
        store.segment(3, 6, 7)

    assert "00000002.seg is damaged at byte 0: the header is damaged" in store.refusal()


@pytest.mark.parametrize("size", [0, 5000])
def test_a_file_that_was_just_made_is_nothing_yet(store: Store, size: int) -> None:
    store.segment(1, 1, 2)
    store.path(2).write_bytes(bytes(size))

    assert store.read(1, 3, fail_on_data_loss=True) == ([1, 2], 0)


def test_a_segment_of_another_stream_is_left_out(store: Store) -> None:
    store.segment(1, 1, 2)
    head = header(3, 2, incarnation=8)
    store.path(2).write_bytes(head + Stored(3).record(tail(head)))

    assert store.read(1, 3) == ([1, 2], 0)


def test_an_overwritten_message_is_gone_and_one_that_was_never_removed_is_refused(store: Store) -> None:
    for removed in ([2, 3], [2]):
        data = header(1)
        for seq, flags in ((1, 0), (2, 2), (3, 2)):
            data += Stored(seq, payload=b"message %d" % seq, flags=flags).record(tail(data))
        data += Stored(4, payload=b"message 4").record(tail(data))
        data += other(DELETES, 4, removed, tail(data), flags=2)
        store.path(1).write_bytes(data)
        if len(removed) == 2:
            assert store.read(1, 5) == ([1, 4], 0)
    assert "message 3 is overwritten but was never removed" in store.refusal()


def test_a_planned_range_that_is_gone_is_loss(store: Store) -> None:
    store.segment(1, 4, 5, 6)

    with pytest.raises(DataLoss, match="up to 3 messages from sequence 1"):
        store.read(1, 7, created=CREATED, fail_on_data_loss=True)
    with pytest.raises(DataLoss, match="another stream has its name"):
        store.read(4, 7, created="2020-01-01T00:00:00Z", fail_on_data_loss=True)


def test_what_consumers_removed_is_no_loss(store: Store) -> None:
    store.segment(1, 4, 5, 6)
    store.write_meta("a", retention="workqueue")

    assert store.read(1, 7, created=CREATED, fail_on_data_loss=True) == ([4, 5, 6], 0)


def test_a_segment_that_is_rewritten_after_it_was_listed_is_read_as_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.segment(1, 1, 2, 3, 4)
    store.segment(2, 5, 6)
    take = snapshot.take

    def rewritten(stream: Any) -> Any:
        found = take(stream)
        store.segment(1, 2, 4)
        return found

    monkeypatch.setattr(snapshot, "take", rewritten)
    assert store.read(1, 7, fail_on_data_loss=True) == ([2, 4, 5, 6], 0)


def test_a_segment_that_is_removed_after_it_was_listed_is_loss(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.segment(1, 1, 2, 3, 4)
    store.segment(2, 5, 6)
    take = snapshot.take

    def trimmed(stream: Any) -> Any:
        found = take(stream)
        store.path(1).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(snapshot, "take", trimmed)
    assert store.read(3, 7, created=CREATED) == ([5, 6], 2)


# -- plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_of_the_files(store: Store) -> None:
    store.segment(1, 3, 4, 5, ts=1_000_000_000)
    store.segment(2, 6, 7, 8, ts=2_000_000_000)

    assert [(span.low, span.high) for span in store.plan().batch(Bounds())] == [(3, 9)]
    spans = store.plan(startingTimestamp="1500", endingOffsets='{"S": 8}').batch(Bounds())
    assert [(span.low, span.high, span.created) for span in spans] == [(6, 8, CREATED)]
    assert store.plan(startingTimestamp="2500").batch(Bounds()) == []


def test_a_stream_that_is_not_there_is_told_with_the_nearest(store: Store) -> None:
    with pytest.raises(StreamMissing, match="did you mean S"):
        store.plan(stream="SS").batch(Bounds())
    with pytest.raises(StreamMissing, match="no stream has such a name"):
        store.plan(stream="X*").batch(Bounds())


def test_what_is_no_store_is_told(store: Store, tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "none", "there is no such directory here"),
        (tmp_path, "this is no store directory"),
    ):
        parsed = parse_options({"path": str(path), "stream": "S"})
        with pytest.raises(BadStore, match=said):
            Planner(parsed, api_of(parsed), 1).batch(Bounds())
    with pytest.raises(BadStore, match=r"no such account; there are \$G"):
        store.plan(account="A").batch(Bounds())
    with pytest.raises(BadStore, match="keyFile=/none: it cannot be read"):
        store.plan(keyFile="/none").batch(Bounds())


def test_the_directory_of_jetstream_itself_is_taken_too(store: Store) -> None:
    store.segment(1, 1, 2)
    store.place = StoreDirectory(str(store.root / "jetstream"))

    assert store.read() == ([1, 2], 0)


def test_what_a_newer_server_wrote_is_refused(store: Store) -> None:
    store.segment(1, 1)
    store.write_meta("a", version=2)

    with pytest.raises(BadStore, match=r"meta.a was written by a newer server: it needs version 0.1.0"):
        store.read()


@pytest.mark.parametrize(
    ("version", "what"),
    [
        (5, "newer server: it needs version 0.1 to read"),
        (2, "older server: it has format 2, and only 3 is read; start the server that wrote it"),
        (1, "older server: it has format 1, and only 3 is read; start the server that wrote it"),
    ],
)
def test_a_segment_of_another_version_is_refused(store: Store, version: int, what: str) -> None:
    data = store.segment(1, 1, 2)
    store.path(1).write_bytes(header(1, version=version) + data[64:])

    with pytest.raises(BadStore, match=f"00000001.seg was written by an? {what}"):
        store.read()


def test_an_encrypted_store_needs_its_key(tmp_path: Path) -> None:
    import tarfile

    from tests.style.tree import ROOT

    with tarfile.open(ROOT / "tests" / "golden" / "format-3-encrypted.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    wrong = tmp_path / "wrong"
    wrong.write_text("another")
    what = ReadRange("PLAIN", 20, 401, columns=("seq",))

    with pytest.raises(StoreKeyNeeded, match="is encrypted; name a file with the key"):
        next(reader.read_range(StoreDirectory(str(tmp_path / "store")), what))
    with pytest.raises(StoreKeyNeeded, match="is encrypted with another key than the one in keyFile"):
        next(reader.read_range(StoreDirectory(str(tmp_path / "store"), key_file=str(wrong)), what))


# -- archives -------------------------------------------------------------------------------------------------------


def test_an_archive_is_made_of_a_directory(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.segment(1, *range(1, 8))
    lake, told = str(tmp_path / "lake"), ("--option", f"path={store.root}")
    options = parse_options({"path": str(store.root), "stream": "S"})

    assert main(["explain", "S", lake, *told, "--json"]) == 0
    assert '"rows": 7' in capsys.readouterr().out
    files = archive_here(lake, options)
    assert [(file.low, file.high, file.rows) for file in files] == [(1, 6, 5), (6, 8, 2)]
    assert lakes.plan(lakes.Lake(lake), options, 5) == []
    assert main(["explain", "S", lake, "--option", f"path={tmp_path}/none"]) == 2


# -- a server's own directory ---------------------------------------------------------------------------------------

Live = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    config = 'jetstream: {store_dir: "<<store>>"}\nmax_payload: 4MB'
    process = ServerProcess(our_command_from_anywhere(), config, tmp_path, with_http=False)
    process.start()
    yield process
    process.kill()


def seqs_in(place: StoreDirectory, low: int, high: int, **given: Any) -> list[int]:
    what = ReadRange("LIVE", low, high, columns=("seq", "data"), **given)
    return [seq for batch in reader.read_range(place, what) for seq in batch.column("seq").to_pylist()]


def test_the_directory_of_a_server_at_work_is_read(server: ServerProcess, tmp_path: Path) -> None:
    filler = Filler(server.port, "LIVE")
    filler.create(storage="file")
    place = StoreDirectory(str(tmp_path / "store"))
    for part in range(1, 6):
        filler.fill(2000, size=2000)  # several segments of 8 MiB
        filler.delete(part)
        assert seqs_in(place, part + 1, 2000 * part + 1) == list(range(part + 1, 2000 * part + 1))
    filler.raw.close()


def test_a_segment_that_is_cut_or_gone_is_known_by_its_index_file(
    server: ServerProcess, tmp_path: Path
) -> None:
    filler = Filler(server.port, "LIVE")
    filler.create(storage="file")
    filler.fill(10_000, size=2000)
    server.stop()
    messages = next((tmp_path / "store").rglob("LIVE")) / "msgs"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "store", copy)
    first = sorted(messages.glob("*.seg"))[0].name
    (next(copy.rglob("LIVE")) / "msgs" / first).unlink()

    place = StoreDirectory(str(tmp_path / "store"))
    assert seqs_in(place, 1, 10_001) == list(range(1, 10_001))
    with pytest.raises(BadStore, match=f"{first} is missing"):
        seqs_in(StoreDirectory(str(copy)), 1, 10_001)
    last = sorted(messages.glob("*.seg"))[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5000)
    with pytest.raises(BadStore, match="is damaged"):
        seqs_in(place, 1, 10_001)


@pytest.mark.parametrize("columns", [("seq", "data"), ("seq",)])
def test_a_stream_that_is_recreated_under_the_reader_is_a_loss_and_nothing_of_it_is_read(
    server: ServerProcess, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    filler = Filler(server.port, "LIVE")
    place, report = StoreDirectory(str(tmp_path / "store")), Report()
    what = ReadRange("LIVE", 1, 9001, created=filler.create(storage="file"), columns=(*columns, "ts_ns"))
    filler.fill(9000, size=2000)  # these fill three segments
    (last,) = reader.read_range(place, replace(what, low=9000))
    strict = reader.read_range(place, replace(what, bulk_batch_rows=100), Report())
    careless = reader.read_range(place, replace(what, bulk_batch_rows=100, fail_on_data_loss=False), report)
    begun = [next(strict), next(careless)]
    filler.api("STREAM.DELETE.LIVE")
    filler.create(storage="file")
    filler.fill(9000, size=2000)

    with pytest.raises(DataLoss, match="another stream has its name by now"):
        list(strict)
    rows = [row for batch in [begun[1], *careless] for row in batch.to_pylist()]

    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert max(row["ts_ns"] for row in rows) < last.column("ts_ns")[0].as_py()
    assert len(rows) + report.lost == 9000
    filler.raw.close()


def test_a_record_that_an_index_file_vouches_for_is_checked(server: ServerProcess, tmp_path: Path) -> None:
    filler = Filler(server.port, "LIVE")
    filler.create(storage="file")
    filler.fill(9000, size=2000)
    server.stop()
    messages = next((tmp_path / "store").rglob("LIVE")) / "msgs"
    path = sorted(messages.glob("*.seg"))[1]
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"damaged")
    place = StoreDirectory(str(tmp_path / "store"))

    with pytest.raises(BadStore, match=f"{path.name} is damaged at byte"):
        seqs_in(place, 1, 9001, fail_on_data_loss=False)
