"""Segments that are missing or were cut: their index files prove which messages they had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import MSG, records

from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 500
COUNT = 24
CHECKSUM_SIZE = 8  # bytes; the checksum of each record is computed from the previous one


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store of three segments after a clean stop; the last one records that 2 and 5 were removed."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(1, COUNT + 1):
        store.store(b"s.%d" % (number % 3), b"", b"payload-%d" % number, 1000 + number)
    store.drop_seq(2)
    store.drop_seq(5, True)
    store.close()
    assert [path.name for path in sorted(store_files(tmp_path / "msgs"))] == [
        f"0000000{number}.{kind}" for number in (1, 2, 3) for kind in ("idx", "seg")
    ]
    return tmp_path / "msgs"


def store_files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.suffix in (".idx", ".seg")]


def readable(store: FileStore) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if store.get(seq) is not None]


def expected(*lost: int) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq not in (2, 5, *lost)]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("how", ["removed", "empty", "zeros", "noise"])
def test_a_segment_that_is_missing_is_counted_at_every_start(directory: Path, number: int, how: str) -> None:
    lost = [seq for seq in seqs_from((directory / f"0000000{number}.seg").read_bytes()) if seq not in (2, 5)]
    path = directory / f"0000000{number}.seg"
    size = path.stat().st_size
    path.write_bytes({"empty": b"", "zeros": bytes(size), "noise": b"x" * size}.get(how, b""))
    if how == "removed":
        path.unlink()
    for _ in range(3):
        log = ListLog()

        store = open_store(directory, log, SEGMENT_SIZE)

        assert readable(store) == expected(*lost)
        assert store.last_seq == COUNT
        assert store.examiner.losses.seqs == lost
        assert "ERR" in [level for level, _ in log.lines]
        store.close()


def test_what_is_stored_after_the_last_segment_went_has_new_sequences(directory: Path) -> None:
    lost = seqs_from((directory / "00000003.seg").read_bytes())
    (directory / "00000003.seg").unlink()
    store = open_store(directory, segment_size=SEGMENT_SIZE)

    assert store.store(b"s.1", b"", b"new", 5000) == COUNT + 1

    store.close()
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    assert readable(store) == expected(*lost)
    message = store.get(COUNT + 1)
    assert message is not None
    assert message.payload == b"new"


@pytest.mark.parametrize("new", ["00000004", "00000012"])
@pytest.mark.parametrize("kinds", [("seg",), ("seg", "idx")])
def test_a_segment_that_was_renamed_is_taken_by_its_name(
    directory: Path, new: str, kinds: tuple[str, ...]
) -> None:
    for kind in ("seg", "idx"):
        path = directory / f"00000003.{kind}"
        if kind in kinds:
            path.rename(directory / f"{new}.{kind}")
        else:
            path.unlink()
    for start in range(2):
        log = ListLog()
        store = open_store(directory, log, SEGMENT_SIZE)
        assert readable(store) == expected()
        assert store.lost is None
        assert f"{new}.seg says that it is number 3" in log.lines[0][1]
        assert store.store(b"s.1", b"", b"new", 5000) == COUNT + 1 + start
        store.close()


def test_a_segment_that_stands_twice_is_read_once(directory: Path) -> None:
    lost = [seq for seq in seqs_from((directory / "00000002.seg").read_bytes()) if seq not in (2, 5)]
    shutil.copy(directory / "00000003.seg", directory / "00000002.seg")
    for _ in range(2):
        store = open_store(directory, segment_size=SEGMENT_SIZE)
        assert readable(store) == expected(*lost)
        assert store.last_seq == COUNT
        store.close()


def test_an_end_that_was_cut_off_is_lost_and_its_sequences_are_not_used_again(directory: Path) -> None:
    data = (directory / "00000003.seg").read_bytes()
    copy = directory.with_name("copy")
    for end in range(len(data) - 1, 63, -1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        (copy / "00000003.seg").write_bytes(data[:end])
        lost = [seq for seq in seqs_from(data) if seq not in seqs_from(data, end)]
        store = open_store(copy, segment_size=SEGMENT_SIZE)
        assert (store.examiner.losses.seqs, store.last_seq) == (lost, COUNT), end
        assert readable(store) == expected(*lost)
        assert store.store(b"s.1", b"", b"new", 5000) == COUNT + 1
        store.close()
        store = open_store(copy, segment_size=SEGMENT_SIZE)
        assert readable(store) == expected(*lost), "a removal came back"
        assert store.last_seq == COUNT + 1
        store.release()


def seqs_from(segment: bytes, end: int = 1 << 32) -> list[int]:
    """Return the sequences of the messages that end before offset `end`."""
    return [
        int.from_bytes(record[8:16], "little")
        for at, kind, record in records(segment)
        if kind == MSG and at + len(record) <= end
    ]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_header_with_what_follows_costs_what_follows(directory: Path, number: int) -> None:
    path = directory / f"0000000{number}.seg"
    data = path.read_bytes()
    end = next(at + len(record) for at, kind, record in records(data) if kind == MSG) - CHECKSUM_SIZE
    path.write_bytes(bytes(end) + data[end:])
    first = seqs_from(data)[0]

    store = open_store(directory, segment_size=SEGMENT_SIZE)

    assert readable(store) == expected(first)
    assert store.examiner.losses.seqs == [first]
    assert store.last_seq == COUNT


def test_an_index_file_whose_messages_would_all_be_gone_is_removed(directory: Path) -> None:
    (directory / "00000001.seg").unlink()
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    store.purge(store.make_filter(()), COUNT, 0)
    store.close()

    store = open_store(directory, segment_size=SEGMENT_SIZE)

    assert store.examiner.losses.msgs == 0
    assert not (directory / "00000001.idx").exists()
    assert readable(store) == [COUNT]


@pytest.mark.parametrize("first", [1, 170])
def test_the_index_file_of_a_segment_that_was_removed_tells_of_no_loss(tmp_path: Path, first: int) -> None:
    store = open_store(tmp_path, segment_size=20_000)
    for number in range(500):
        store.store(b"s", b"", b"x" * 200, 1000 + number)
    store.flush()
    store.sync_now()
    old = {path: path.read_bytes() for path in tmp_path.glob("*.idx")}
    for seq in range(first, 350):
        store.drop_seq(seq)
    store.flush()
    store.sync_now()
    messages = store.msgs
    store.release()
    for path, data in old.items():  # the power loss undoes the removal of these files
        path.write_bytes(data)
    for _ in range(2):
        log = ListLog()
        store = open_store(tmp_path, log, 20_000)
        assert (store.msgs, store.lost) == (messages, None)
        assert [line for line in log.lines if line[0] in ("WRN", "ERR")] == []
        store.release()


def test_the_index_file_of_another_stream_is_no_witness(directory: Path) -> None:
    (directory / "00000003.seg").unlink()

    store = FileStore(*_as_another(directory))

    assert store.examiner.losses.msgs == 0
    assert not (directory / "00000003.idx").exists()


def _as_another(directory: Path) -> tuple[object, ...]:
    store = open_store(directory.with_name("other"))
    return store.files.disk, str(directory), ListLog(), SEGMENT_SIZE, store.files.incarnation + 1
