"""A segment is cut, or has a bad sector, while the store is in use: other messages remain, losses are counted."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.file_map import FileMap
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.format.outer_header import CODEC_ZSTD
from pyjs.store.format.recast import Recast

SEGMENT_SIZE = 40_000
COUNT = 600
PAGE = 4096
ROOT = Path(__file__).parents[4]


def open_store(directory: Path, disk: OsDisk | None = None, log: ListLog | None = None) -> FileStore:
    return FileStore(disk or OsDisk(), str(directory), log or ListLog(), SEGMENT_SIZE, INCARNATION)


def payload(seq: int) -> bytes:
    return b"%04d" % seq + b"x" * 200


def filled(directory: Path) -> FileStore:
    store = open_store(directory)
    for number in range(1, COUNT + 1):
        store.store(b"s", b"", payload(number), 1000 + number)
        if number % 10 == 0:
            store.flush()
    store.sync_now()
    return store


def readable(store: FileStore) -> list[int]:
    """Return the sequences with the payload that was stored; no other payload may be returned."""
    messages = [store.get(seq) for seq in range(1, COUNT + 1)]
    there = [message for message in messages if message is not None]
    assert all(message.payload == payload(message.seq) for message in there)
    return [message.seq for message in there]


@pytest.mark.parametrize("seen_before", [True, False])
@pytest.mark.parametrize("segment", [0, -1])
@pytest.mark.parametrize("size", [0, 64, PAGE, PAGE * 2 + 100])
def test_what_is_in_front_of_a_cut_is_served_and_the_rest_counted(
    tmp_path: Path, seen_before: bool, segment: int, size: int
) -> None:
    store = filled(tmp_path)
    assert not seen_before or len(readable(store)) == COUNT

    os.truncate(store.segment_paths()[segment], size)

    left = readable(store)
    lost = sorted(set(range(1, COUNT + 1)) - set(left))
    assert 0 < len(lost) < 200
    assert store.examiner.losses.seqs == lost
    assert store.msgs == len(left)
    assert readable(store) == left
    store.close()


def test_a_cut_last_segment_is_written_on(tmp_path: Path) -> None:
    store = filled(tmp_path)
    readable(store)
    os.truncate(store.segment_paths()[-1], PAGE)
    left = readable(store)

    store.store(b"s", b"", payload(COUNT + 1), 3000)
    staged = store.get(COUNT + 1)
    store.flush()

    assert staged is not None
    assert store.get(COUNT + 1).payload == payload(COUNT + 1)
    store.close()
    again = open_store(tmp_path)
    assert readable(again) == left
    assert again.get(COUNT + 1).payload == payload(COUNT + 1)
    again.close()


def test_the_sequences_of_a_cut_last_segment_are_not_used_again(tmp_path: Path) -> None:
    store = filled(tmp_path)
    os.truncate(store.segment_paths()[-1], PAGE)
    readable(store)
    store.close()

    again = open_store(tmp_path)

    assert again.last_seq == COUNT
    again.close()


def test_what_is_not_in_the_file_yet_is_not_lost_with_it(tmp_path: Path) -> None:
    store = filled(tmp_path)
    readable(store)
    store.store(b"s", b"", payload(COUNT + 1), 3000)
    os.truncate(store.segment_paths()[-1], PAGE)

    assert store.get(COUNT) is None

    assert store.get(COUNT + 1).payload == payload(COUNT + 1)
    store.flush()
    assert store.get(COUNT + 1).payload == payload(COUNT + 1)
    store.close()


def test_a_cut_segment_is_not_rewritten_with_zeros(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for seq in range(1, 150):
        if seq % 10:
            store.drop_seq(seq)
    store.flush()
    store.sync_now()
    job = store.begin_upkeep()
    assert job is not None
    os.truncate(store.segment_paths()[0], PAGE)
    store.finish_upkeep(job())
    store.sync_now()
    left = readable(store)
    assert left[-1] == COUNT
    assert store.examiner.losses.msgs > 0
    store.close()


def test_a_cut_index_file_never_shows_zeros_and_is_recreated_by_the_next_start(tmp_path: Path) -> None:
    filled(tmp_path).close()
    script = (
        "import os, sys; from pathlib import Path; from tests.unit.store.file.test_bad_pages import *\n"
        "store = open_store(Path(sys.argv[1])); os.truncate(sys.argv[1] + '/00000001.idx', 0); readable(store)"
    )

    done = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, check=False)

    assert done.returncode == -signal.SIGBUS
    store = open_store(tmp_path)
    assert len(readable(store)) == COUNT
    store.close()


class BadSector(OsDisk):
    """Cannot read the page at offset `at` of the first segment."""

    def __init__(self, at: int) -> None:
        self.at = at

    def read_file(self, path: str) -> bytes:
        if path.endswith("01.seg"):
            raise OSError(errno.EIO, "EIO", path)
        return super().read_file(path)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        first = os.readlink(f"/proc/self/fd/{fd}").endswith("01.seg")
        if first and offset < self.at + PAGE and offset + size > self.at:
            raise OSError(errno.EIO, "EIO")
        return super().read_at(fd, size, offset)


def spoil(path: str, at: int) -> None:
    """Make a map read as zeros where the sector is bad, as the signal handler does."""
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(PAGE))


@pytest.mark.parametrize("at", [0, PAGE, 3 * PAGE])
def test_a_bad_sector_costs_what_is_in_it(tmp_path: Path, at: int) -> None:
    filled(tmp_path).close()
    store = open_store(tmp_path, BadSector(at))
    spoil(store.segment_paths()[0], at)

    left = readable(store)

    assert COUNT - len(left) in range(15, 20)
    assert store.examiner.losses.seqs == sorted(set(range(1, COUNT + 1)) - set(left))
    store.close()


@pytest.mark.parametrize("at", [PAGE, 8 * PAGE])
def test_a_start_reads_around_a_bad_sector(tmp_path: Path, at: int) -> None:
    store = filled(tmp_path)
    store.close()
    spoil(store.segment_paths()[0], at)
    for path in tmp_path.glob("*.idx"):
        path.unlink()

    store = open_store(tmp_path, BadSector(at))

    left = readable(store)
    assert COUNT - len(left) in range(15, 20)
    assert store.examiner.losses.msgs == COUNT - len(left)
    store.close()


class CutOnMap(OsDisk):
    """Makes the end of a segment unreadable once it is mapped, as if its sectors were bad."""

    def map_file(self, fd: int, size: int) -> FileMap:
        found = super().map_file(fd, size)
        os.truncate(f"/proc/self/fd/{fd}", PAGE)
        return found


def test_an_end_that_cannot_be_read_is_no_write_that_was_cut_short(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(1, 40):
        store.store(b"s", b"", payload(number), 1000 + number)
    store.flush()
    store.release()
    log = ListLog()

    store = open_store(tmp_path, CutOnMap(), log)

    assert store.lost is not None
    assert [line for _, line in log.lines if "the last record is damaged" in line]
    left = readable(store)
    assert store.last_seq == left[-1] + 1
    store.close()


def test_zeros_of_an_unreadable_page_are_never_put_in_another_form(tmp_path: Path) -> None:
    store = filled(tmp_path)
    path = store.segment_paths()[0]
    store.close()

    error = Recast(CutOnMap(), path, 1, CODEC_ZSTD, None, b"")()

    assert "cannot be read any more" in str(error)
