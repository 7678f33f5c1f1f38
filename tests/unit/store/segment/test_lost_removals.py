"""Damaged records of removals: the index file of the segment, or the running store, still has the removals."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import DELETES, MSG, STATE, IndexWriter, records, resealed

from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 1000
COUNT = 40
REMOVED = (4, 6, 9)  # 1 and 2 are removed too: a STATE record says that 3 is the first message
OPEN, SEALED = "00000003", "00000002"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cleanly stopped store: a segment in the middle and the last one record removals from the first one."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(1, COUNT + 1):
        store.store(b"s.%d" % (number % 3), b"", b"payload-%d" % number, 1000 + number)
        store.flush()
        if number == 20:
            store.drop_seq(REMOVED[0])
        if number == 37:
            store.drop_seq(REMOVED[1])
            store.drop_seq(REMOVED[2], True)
            store.drop_seq(1)
            store.drop_seq(2)
        store.flush()
    store.close()
    assert [path.stem for path in sorted((tmp_path / "msgs").glob("*.idx"))] == ["00000001", SEALED, OPEN]
    return tmp_path / "msgs"


def span_of(path: Path, *kinds: int) -> tuple[int, int]:
    """Return the offsets of the first and last byte of the records of these kinds before the last message."""
    found = list(records(path.read_bytes()))
    last = max(at for at, kind, _ in found if kind == MSG)
    places = [(at, at + len(record)) for at, kind, record in found if kind in kinds and at < last]
    return places[0][0], places[-1][1]


def overwrite(path: Path, start: int, end: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:start] + bytes(end - start) + data[end:])


def readable(store: FileStore) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if store.get(seq) is not None]


def expected(*lost: int) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq not in (1, 2, *REMOVED, *lost)]


def check_starts(directory: Path, *lost: int) -> None:
    """Assert that no removal comes back: at a start, after a kill at once, and later without any index file."""
    killed = open_store(directory, segment_size=SEGMENT_SIZE)
    assert readable(killed) == expected(*lost)
    killed.release()
    for _ in range(2):
        log = ListLog()
        store = open_store(directory, log, SEGMENT_SIZE)
        assert readable(store) == expected(*lost)
        assert store.examiner.losses.seqs == list(lost)
        assert [level for level, _ in log.lines if level in ("WRN", "ERR")]
        store.close()
    sizes = [path.stat().st_size for path in sorted(directory.glob("*.seg"))]
    open_store(directory, None, SEGMENT_SIZE).close()
    assert [path.stat().st_size for path in sorted(directory.glob("*.seg"))] == sizes, "recorded again"
    for path in directory.glob("*.idx"):
        path.unlink()
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    assert readable(store) == expected(*lost)
    store.release()


@pytest.mark.parametrize("name", [OPEN, SEALED])
def test_removals_are_taken_from_the_index_file_if_their_records_are_damaged(
    directory: Path, name: str
) -> None:
    path = directory / f"{name}.seg"
    overwrite(path, *span_of(path, DELETES, STATE))

    check_starts(directory)


def test_removals_are_taken_from_the_index_file_if_messages_beside_them_are_lost(directory: Path) -> None:
    path = directory / f"{OPEN}.seg"
    start, end = span_of(path, DELETES, STATE)
    overwrite(path, start - 20, end + 20)  # 37 ends before the records, 38 begins after them

    check_starts(directory, 37, 38)


def test_the_header_may_be_damaged_as_well(directory: Path) -> None:
    path = directory / f"{SEALED}.seg"
    overwrite(path, *span_of(path, DELETES))
    overwrite(path, 16, 24)

    check_starts(directory)


def test_an_end_may_be_damaged_whose_checksum_is_left(directory: Path) -> None:
    """The last bytes alone seem to prove the index file."""
    path = directory / f"{OPEN}.seg"
    overwrite(path, span_of(path, DELETES, STATE)[0], path.stat().st_size - 8)

    store = open_store(directory, segment_size=SEGMENT_SIZE)

    assert readable(store) == expected(38, 39, 40)
    assert store.examiner.losses.seqs == [38, 39, 40]
    assert store.store(b"s.1", b"", b"new", 5000) == COUNT + 1
    store.close()


@pytest.mark.parametrize("field", ["removals", "first_seq"])
def test_an_index_file_that_removes_more_than_the_damage_can_have_recorded_is_not_used(
    directory: Path, field: str
) -> None:
    path = directory / f"{SEALED}.seg"
    writer = IndexWriter(path.read_bytes())
    if field == "removals":
        writer.removals += [10, 11]
    else:
        writer.first_seq = 12
    path.with_suffix(".idx").write_bytes(resealed(writer.data()))
    overwrite(path, *span_of(path, DELETES))
    log = ListLog()

    store = open_store(directory, log, SEGMENT_SIZE)

    assert set(readable(store)) == {*expected(), REMOVED[0]}
    assert not path.with_suffix(".idx").exists()
    assert "is not used" in log.lines[0][1]
    store.close()


@pytest.mark.parametrize("name", [OPEN, SEALED])
def test_removals_are_recorded_again_if_a_running_store_finds_their_records_damaged(
    directory: Path, name: str
) -> None:
    path = directory / f"{name}.seg"
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    start, end = span_of(path, DELETES, STATE)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start + 20))  # the next message as well
    lost = 38 if name == OPEN else 21
    assert readable(store) == expected(lost)
    store.flush()
    shutil.copytree(directory, directory.with_name("killed"))
    store.close()

    check_starts(directory, lost)
    check_starts(directory.with_name("killed"), lost)
