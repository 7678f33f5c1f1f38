"""Index files: their bytes, when they are written, and that a store without them has the same contents."""

from __future__ import annotations

import gc
import shutil
import struct
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
import xxhash
from tests.support.disk import FaultyDisk, damaged
from tests.unit.store.file_state import INCARNATION, MapCounter, open_store, state_of
from tests.unit.store.segment_files import index_of, message_record, resealed, segment_of

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.segment.index_file import (
    IndexUnusable,
    decode_index,
    encode_index,
    index_path,
    remove_file,
)
from pyjs.store.segment.scan import scan_segment

DOCUMENT = Path(__file__).parents[4] / "docs" / "storage-format.md"
SEGMENT_SIZE = 1000


def example(title: str) -> bytes:
    """Return the bytes that the document shows under a title; text after two spaces is a comment."""
    lines = DOCUMENT.read_text().partition(f"### {title}\n")[2].split("```")[1].splitlines()
    return bytes.fromhex("".join(line.partition("  ")[0] for line in lines))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cleanly stopped store of several segments, with gaps, removals, an erased message and headers."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(80):
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if number % 3 == 0 else b""
        store.store(b"s.%d" % (number % 5), headers, b"payload-%d" % number, 1000 + number)
        if number % 10 == 4:
            store.skip_seq()
        if number % 7 == 6:
            store.flush()
            store.drop_seq(store.last_seq - 3, number == 27)
    store.drop_seq(1)
    store.drop_seq(2)
    store.close()
    assert len(list((tmp_path / "msgs").glob("*.seg"))) > 4
    return tmp_path / "msgs"


def index_files(directory: Path) -> dict[str, bytes]:
    """Return the index files by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.idx"))}


def without_index(directory: Path) -> dict[str, object]:
    """Return the state of a copy without index files."""
    copy = directory.with_name("bare")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.idx"))
    store = open_store(copy, segment_size=SEGMENT_SIZE)
    state = state_of(store)
    store.close()
    state["segments"] = [path.replace(str(copy), str(directory)) for path in store.segment_paths()]
    return state


def started(directory: Path, log: ListLog | None = None) -> dict[str, object]:
    """Return the state of the store directly after a start."""
    store = open_store(directory, log, SEGMENT_SIZE)
    state = state_of(store)
    store.release()
    return state


# -- the bytes -------------------------------------------------------------------------------------------------
def test_the_documented_bytes_decode_by_the_documented_layout() -> None:
    data = example("Example of an index file")
    segment = example("Example of a segment")
    magic, version, flags, base, number, sealed, incarnation = struct.unpack_from("<8sIIQIIQ", data)
    assert (magic, version, flags) == (b"PYJSIDX\n", 1, 0)
    assert (base, number, sealed, incarnation) == (1, 1, 0, 7)
    size, checksum, first_seq, first_ts, last_ts, message_bytes = struct.unpack_from("<QQQqqQ", data, 40)
    assert (size, first_seq, message_bytes) == (len(segment), 0, 5)
    assert checksum == struct.unpack("<Q", segment[-8:])[0]
    assert (first_ts, last_ts) == (1_700_000_000_000_000_000,) * 2
    assert struct.unpack_from("<8I", data, 88) == (40, 1, 1, 0, 24, 1, 3, 0)
    entry = struct.unpack_from("<QqIIIHHII", data, 128)
    assert entry == (1, 1_700_000_000_000_000_000, 64, 2, 0, 3, 1, 0, 0)
    assert struct.unpack_from("<IIIIII", data, 168) == (1, 0, 0, 0, 3, 0)
    assert data[192:200] == b"a.b" + bytes(5)
    assert data[200:] == struct.pack("<Q", xxhash.xxh64_intdigest(data[:200]))


def test_we_write_the_documented_bytes_and_take_them_back() -> None:
    segment, index = example("Example of a segment"), example("Example of an index file")
    assert encode_index(scan_segment(segment)) == index
    assert encode_index(decode_index(index)) == index
    assert index_of(segment) == index


def test_every_index_file_is_what_the_document_says_of_its_segment(directory: Path) -> None:
    files = index_files(directory)
    assert files == {
        path.with_suffix(".idx").name: index_of(path.read_bytes()) for path in directory.glob("*.seg")
    }


def test_records_with_term_and_index_are_found_behind_these(tmp_path: Path) -> None:
    records = [message_record(seq, 100 + seq, b"s", b"", b"p%d" % seq, bytes(16)) for seq in range(1, 4)]
    segment = segment_of(1, *records)
    (tmp_path / "00000001.seg").write_bytes(segment)
    for _ in range(2):  # from the segment, then from the index file
        store = open_store(tmp_path)
        assert [store.get(seq).payload for seq in range(1, 4)] == [b"p1", b"p2", b"p3"]  # type: ignore[union-attr]
        store.close()
        assert index_files(tmp_path) == {"00000001.idx": index_of(segment)}


def test_what_is_no_segment_has_no_index() -> None:
    with pytest.raises(ValueError, match="no header"):
        scan_segment(b"nothing")


# -- when they are read and written ------------------------------------------------------------------------------
def test_a_start_after_a_clean_stop_reads_no_records(directory: Path) -> None:
    expected = without_index(directory)
    disk = MapCounter()
    store = FileStore(disk, str(directory), ListLog(), SEGMENT_SIZE, INCARNATION)
    maps = disk.maps
    state = state_of(store)
    store.close()
    assert maps == 0
    assert state == expected


def test_a_start_after_a_kill_reads_the_records_of_the_open_segment_only(directory: Path) -> None:
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    for number in range(20):
        store.store(b"more", b"", b"x" * 50, 2000 + number)
    store.flush()
    store.sync_now()
    killed = directory.with_name("killed")
    shutil.copytree(directory, killed)
    state = state_of(store)
    store.close()

    disk, log = MapCounter(), ListLog()
    again = FileStore(disk, str(killed), log, SEGMENT_SIZE, INCARNATION)
    maps = disk.maps
    found = state_of(again)
    again.close()
    assert maps == 1
    assert log.lines == []
    assert {**found, "segments": 0} == {**state, "segments": 0}


def test_a_segment_of_the_highest_sequences_has_no_wide_gap(tmp_path: Path) -> None:
    store = open_store(tmp_path / "msgs")
    store.set_first_seq((1 << 64) - 40)
    for _ in range(3):
        store.store(b"a", b"", b"x", 1000)
    store.close()

    found = scan_segment(Path(*store.segment_paths()).read_bytes())

    assert (found.base_seq, found.n) == ((1 << 64) - 40, 3)
    assert not attrgetter("sparse")(found)
    assert started(tmp_path / "msgs") == without_index(tmp_path / "msgs")


def test_an_idle_start_and_stop_leave_the_files_alone(directory: Path) -> None:
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}
    open_store(directory, segment_size=SEGMENT_SIZE).close()
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}
    assert after == before


def test_a_start_without_index_files_makes_them_again(directory: Path) -> None:
    before = index_files(directory)
    expected = without_index(directory)
    for name in before:
        (directory / name).unlink()
    log = ListLog()
    log.debug_on = True
    assert started(directory, log) == expected
    sealed = {name: data for name, data in before.items() if data[28]}
    assert index_files(directory) == sealed
    assert {level for level, _ in log.lines} == {"DBG"}
    open_store(directory, segment_size=SEGMENT_SIZE).close()
    assert index_files(directory) == before


def test_a_removed_segment_takes_its_index_file_along(directory: Path) -> None:
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    store.purge(store.make_filter(()), store.last_seq)
    store.flush()
    store.sync_now()
    store.sync_now()
    assert len(list(directory.glob("*.seg"))) == 1
    store.close()
    assert [path.stem for path in directory.glob("*.idx")] == [path.stem for path in directory.glob("*.seg")]


def test_an_index_file_without_segment_is_removed(directory: Path) -> None:
    expected = without_index(directory)
    shutil.copy(directory / "00000001.idx", directory / "00009999.idx")
    assert started(directory) == expected
    assert not (directory / "00009999.idx").exists()


def test_an_index_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    unwritten = 0
    for at in range(12):
        disk, log = FaultyDisk(), ListLog()
        log.debug_on = True
        directory = tmp_path / str(at)
        store = FileStore(disk, str(directory), log, SEGMENT_SIZE, INCARNATION)
        for number in range(25):
            store.store(b"s", b"", b"payload-%d" % number, number)
        store.flush()
        job = store.begin_sync()
        assert job is not None
        disk.at, disk.error = disk.calls + at, 5
        error = job()
        disk.at = -1
        store.finish_sync(job, error)
        store.close()
        assert started(directory) == without_index(directory)
        unwritten += any("gets no index file" in text for _, text in log.lines)
    assert unwritten == 3  # removing, opening and writing the index file of the one sealed segment


def test_a_start_on_a_disk_that_takes_no_index_file_goes_on(directory: Path) -> None:
    expected = without_index(directory)
    for path in directory.glob("*.idx"):
        path.unlink()
        path.mkdir()
    log = ListLog()
    assert started(directory, log) == expected
    assert any("cannot be written" in text for _, text in log.lines)


def test_an_index_file_that_cannot_be_removed_is_reported(directory: Path) -> None:
    (directory / "00000001.idx").unlink()
    (directory / "00000001.idx").mkdir()
    log = ListLog()
    remove_file(OsDisk(), log, str(directory / "00000001.idx"))
    assert log.lines[0][0] == "WRN"


def half_full(directory: Path, dead: bool) -> tuple[FileStore, ListLog]:
    """Return a store with one sealed, unsynced segment; with `dead` one of its messages is removed."""
    log = ListLog()
    log.debug_on = True
    store = open_store(directory, log, SEGMENT_SIZE)
    for number in range(25):
        store.store(b"s.%d" % (number % 3), b"", b"payload-%d" % number, 1000 + number)
        if dead and number == 5:
            store.drop_seq(3)
    store.flush()
    return store, log


@pytest.mark.parametrize("dead", [False, True])
def test_the_sync_after_the_sealing_writes_the_index_file(tmp_path: Path, dead: bool) -> None:
    store, log = half_full(tmp_path, dead)
    assert index_files(tmp_path) == {}
    store.sync_now()
    assert index_files(tmp_path) == {"00000001.idx": index_of((tmp_path / "00000001.seg").read_bytes())}
    assert log.lines == []
    store.close()


@pytest.mark.parametrize(("dead", "at"), [(True, 8), (True, 80), (False, -1), (True, -1)])
def test_a_damaged_segment_gets_no_index_file(tmp_path: Path, dead: bool, at: int) -> None:
    store, log = half_full(tmp_path, dead)
    path = tmp_path / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :] if at >= 0 else data[:-10])
    store.sync_now()
    assert index_files(tmp_path) == {}
    assert [level for level, text in log.lines if "gets no index file" in text] == ["DBG"]
    store.release()


def test_an_index_larger_than_its_buffer_is_right(tmp_path: Path) -> None:
    count = 30_000
    store = open_store(tmp_path, segment_size=2 << 20)
    for number in range(count):
        store.store(b"kv.%060d" % number, b"", b"x" * 20, 1 + number)
    store.flush()
    assert len(store.segment_paths()) > 1
    store.sync_now()
    store.close()

    log = ListLog()
    again = open_store(tmp_path, log)

    assert log.lines == []
    assert [again.get(1 + number).subject for number in range(0, count, 997)] == [
        b"kv.%060d" % number for number in range(0, count, 997)
    ]
    again.close()


def test_writing_index_files_leaves_nothing_behind(tmp_path: Path) -> None:
    def views() -> int:
        gc.collect()
        return sum("memoryview" in type(each).__name__ for each in gc.get_objects())

    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    counts = []
    for number in range(1000):
        store.store(b"s", b"", b"payload-%d" % number, 1000 + number)
        if number % 8 == 7:
            store.sync_now()
        if number in (99, 999):
            counts.append(views())
    written = len(index_files(tmp_path / "msgs"))
    store.close()
    assert written > 40
    assert counts[1] <= counts[0]


def test_segments_may_go_while_their_index_files_are_written(tmp_path: Path) -> None:
    store, _ = half_full(tmp_path, False)
    job = store.begin_sync()
    assert job is not None
    store.purge(store.make_filter(()), 10)
    store.purge(store.make_filter(()))
    store.flush()
    assert job() is None
    store.finish_sync(job, None)
    store.sync_now()
    store.sync_now()
    assert [path.name for path in tmp_path.iterdir()] == ["00000003.seg"]
    store.close()


def test_a_store_may_go_while_its_index_files_are_written(tmp_path: Path) -> None:
    store, _ = half_full(tmp_path, False)
    job = store.begin_sync()
    assert job is not None
    store.release()
    del store
    gc.collect()
    assert job() is None
    assert index_files(tmp_path) == {"00000001.idx": index_of((tmp_path / "00000001.seg").read_bytes())}


def test_what_was_found_damaged_before_the_sync_gets_no_index_file(tmp_path: Path) -> None:
    store, _ = half_full(tmp_path, False)
    path = tmp_path / "00000001.seg"
    data = path.read_bytes()
    path.write_bytes(data[:80] + b"\xff" + data[81:])
    assert store.get(1) is None
    assert store.examiner.losses.seqs == [1]
    store.sync_now()
    assert index_files(tmp_path) == {}
    store.close()


# -- damage ----------------------------------------------------------------------------------------------------
def test_no_damaged_index_file_is_taken(directory: Path) -> None:
    data = index_files(directory)["00000002.idx"]
    for what, bad in damaged(data):
        with pytest.raises(IndexUnusable):
            decode_index(bad)
        assert bad != data, what


def test_a_damaged_index_file_is_reported_and_recreated(directory: Path) -> None:
    expected = without_index(directory)
    before = index_files(directory)
    names = [sorted(before)[1], sorted(before)[-1]]  # of a sealed segment, and of the open one
    for name in names:
        for what, bad in damaged(before[name], stride=5):
            (directory / name).write_bytes(bad)
            log = ListLog()
            store = open_store(directory, log, SEGMENT_SIZE)
            assert state_of(store) == expected, what
            store.close()
            assert [level for level, text in log.lines if name in text] == ["WRN"], what
            assert index_files(directory) == before, what


def test_an_index_file_of_an_earlier_state_is_not_used(directory: Path) -> None:
    old = index_files(directory)
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    for number in range(30):
        store.store(b"more", b"", b"y" * 60, 3000 + number)
        if number % 10 == 0:
            store.drop_seq(store.last_seq - 5)
    store.close()
    new = index_files(directory)
    expected = without_index(directory)
    for name, data in old.items():
        (directory / name).write_bytes(data)
    assert started(directory) == expected
    open_store(directory, segment_size=SEGMENT_SIZE).close()
    assert index_files(directory) == new


def test_an_index_file_of_another_segment_or_stream_is_not_used(directory: Path) -> None:
    expected = without_index(directory)
    files = index_files(directory)
    other = directory.with_name("other")
    stranger = FileStore(OsDisk(), str(other), ListLog(), SEGMENT_SIZE, INCARNATION + 1)
    for number in range(40):
        stranger.store(b"z", b"", b"payload-%d" % number, number)
    stranger.close()
    for data in (files["00000001.idx"], *index_files(other).values()):
        (directory / "00000002.idx").write_bytes(data)
        assert started(directory) == expected


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (8, "<I", 2),  # version
        (12, "<I", 1),  # an unknown feature
        (40, "<Q", 1 << 63),  # segment_size
        (40, "<Q", 0),
        (88, "<I", 48),  # entry_size
        (92, "<I", 4_000_000_000),  # entries
        (96, "<I", 3),  # messages
        (104, "<I", 32),  # subject_size
        (108, "<I", 0),  # subjects
        (112, "<I", 1 << 31),  # names_size
        (116, "<I", 1),  # removals
        (80, "<Q", 1),  # message_bytes
        (100, "<I", 77),  # with_headers
        (128, "<Q", 77),  # seq of the first entry
        (128 + 16, "<I", 3),  # a message's offset, inside the header
        (128 + 16, "<I", 4_000_000_000),
        (128 + 20, "<I", 1),  # its size, less than its headers
        (128 + 20, "<I", 4_000_000_000),
        (128 + 28, "<H", 60_000),  # its subject_len
        (128 + 32, "<I", 500),  # its subject
        (128 + 32, "<I", 1),
        (128 + 36, "<I", 1),  # its prev
    ],
)
def test_an_index_file_that_contradicts_itself_is_not_used(
    directory: Path, offset: int, layout: str, value: int
) -> None:
    expected = without_index(directory)
    data = bytearray(index_files(directory)["00000001.idx"])
    struct.pack_into(layout, data, offset, value)
    (directory / "00000001.idx").write_bytes(resealed(bytes(data)))
    assert started(directory) == expected


def subject_rows(data: bytes) -> Iterator[int]:
    """Yield the offsets of the subjects in an index file."""
    entries, subjects = struct.unpack_from("<I", data, 92)[0], struct.unpack_from("<I", data, 108)[0]
    yield from range(128 + 40 * entries, 128 + 40 * entries + 24 * subjects, 24)


@pytest.mark.parametrize("field", range(5))
def test_an_index_file_with_a_wrong_subject_is_not_used(directory: Path, field: int) -> None:
    expected = without_index(directory)
    data = bytearray(index_files(directory)["00000001.idx"])
    for row in subject_rows(data):
        struct.pack_into("<I", data, row + 4 * field, 1_000_000)
    (directory / "00000001.idx").write_bytes(resealed(bytes(data)))
    assert started(directory) == expected


def test_an_unreadable_index_file_is_reported(directory: Path) -> None:
    expected = without_index(directory)
    (directory / "00000001.idx").unlink()
    (directory / "00000001.idx").mkdir()
    log = ListLog()
    assert started(directory, log) == expected
    assert log.lines[0][0] == "WRN"
    assert index_path(str(directory / "00000001.seg")) in log.lines[0][1]
