"""Which segments are compacted, and when the new file replaces the old one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.unit.store.encodings import ENCODINGS, a_key, upkeep
from tests.unit.store.file_state import open_store

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.crypt.keys import CHACHA
from pyjs.store.file.store import FileStore
from pyjs.store.format.outer_header import CODEC_ZSTD, read_outer_header

SEGMENT_SIZE = 40_000
COUNT = 500
FIRST = "00000001.seg"


def filled(directory: Path, log: ListLog | None = None) -> FileStore:
    """Return a store of three segments."""
    store = open_store(directory, log, SEGMENT_SIZE)
    for seq in range(1, COUNT + 1):
        store.store(b"s", b"", b"%04d" % seq + b"x" * 150, 1000 + seq)
    store.flush()
    store.sync_now()
    assert len(store.segment_paths()) == 3
    return store


def thin_out(store: FileStore, keep: int, first: int = 1, last: int = COUNT) -> None:
    """Remove all messages except each `keep`-th, in a durable commit."""
    for seq in range(first, last + 1):
        if seq % keep:
            store.drop_seq(seq)
    store.flush()
    store.sync_now()


def encoding_of(path: Path) -> int:
    outer = read_outer_header(path.read_bytes()[:64], str(path))
    return 0 if outer is None else outer.flags


def test_nothing_is_written_again_while_half_of_a_segment_is_left(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 2, last=20)

    assert store.compactor.begin(0) is None

    store.release()


def test_a_segment_of_which_most_is_dead_is_written_again_once(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4, last=200)

    job = store.compactor.begin(store.syncs.written_mark)

    assert job is not None
    assert job.path.endswith(FIRST)
    assert store.compactor.begin(store.syncs.written_mark) is None
    store.release()


def test_the_last_segment_stays_as_it_is(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4, first=450)

    assert store.compactor.begin(store.syncs.written_mark) is None

    store.release()


def test_a_new_file_takes_its_place_when_its_mark_is_on_the_medium(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4)
    before = (tmp_path / FIRST).stat().st_size
    job = store.compactor.begin(store.syncs.written_mark + 1)
    assert job is not None

    store.compactor.finish(job())
    assert (tmp_path / FIRST).stat().st_size == before

    store.store(b"s", b"", b"one more commit", 9999)
    store.flush()
    store.sync_now()
    assert (tmp_path / FIRST).stat().st_size < before / 2
    assert [seq for seq in range(1, 100) if store.get(seq)] == list(range(4, 100, 4))
    store.close()


def removed_files_open(directory: Path) -> int:
    """Return how many open descriptors of this process belong to removed files of a directory."""
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if lives(fd)]
    return sum(link.startswith(str(directory)) and link.endswith("(deleted)") for link in links)


def lives(fd: str) -> bool:
    """Return whether a descriptor is open; the one of the directory listing itself is already closed."""
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_the_space_of_a_replaced_file_is_freed_by_the_next_upkeep(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4)
    job = store.compactor.begin(store.syncs.written_mark)
    assert job is not None

    store.compactor.finish(job())

    assert removed_files_open(tmp_path) == 1
    assert store.wants_upkeep
    release = store.begin_upkeep()
    assert release is not None
    assert removed_files_open(tmp_path) == 1
    store.finish_upkeep(release())
    assert removed_files_open(tmp_path) == 0
    store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_replaced_file_stays_open_when_its_store_closes(tmp_path: Path, when: str) -> None:
    store = filled(tmp_path)
    thin_out(store, 4)
    job = store.compactor.begin(store.syncs.written_mark + (when == "before"))
    assert job is not None
    error = job()
    if when == "before":
        store.release()
    store.compactor.finish(error)
    store.release()

    assert removed_files_open(tmp_path) == 0


def test_a_job_that_failed_leaves_the_segment_and_no_file(tmp_path: Path) -> None:
    store = filled(tmp_path, log := ListLog())
    thin_out(store, 4)
    before = (tmp_path / FIRST).read_bytes()
    job = store.compactor.begin(store.syncs.written_mark)
    assert job is not None
    job()

    store.compactor.finish(OSError(errno.EIO, "the disk is bad"))

    assert (tmp_path / FIRST).read_bytes() == before
    assert list(tmp_path.glob("*.new")) == []
    assert [text for level, text in log.lines if "stays larger than its messages" in text]
    store.close()


def test_a_segment_that_changed_meanwhile_keeps_its_file(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4)
    job = store.compactor.begin(store.syncs.written_mark)
    assert job is not None
    error = job()
    store.drop_seq(8, erase=True)
    before = (tmp_path / FIRST).read_bytes()

    store.compactor.finish(error)

    assert (tmp_path / FIRST).read_bytes() == before
    assert list(tmp_path.glob("*.new")) == []
    store.close()


def test_a_store_that_closes_leaves_no_new_file(tmp_path: Path) -> None:
    store = filled(tmp_path)
    thin_out(store, 4)
    job = store.compactor.begin(store.syncs.written_mark + 1)
    assert job is not None
    store.compactor.finish(job())
    assert list(tmp_path.glob("*.new"))

    store.release()

    assert list(tmp_path.glob("*.new")) == []


def test_sealed_segments_are_compressed_and_the_open_one_is_not(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.compactor.set_codec(CODEC_ZSTD)

    assert upkeep(store) == 2

    assert [encoding_of(path) for path in sorted(tmp_path.glob("*.seg"))] == [CODEC_ZSTD, CODEC_ZSTD, 0]
    assert store.get(1) is not None
    store.close()


def test_no_more_segments_are_compressed_when_nobody_wants_them_so(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.compactor.set_codec(CODEC_ZSTD)
    store.compactor.set_codec(0)

    assert store.compactor.begin(0) is None

    store.close()


def test_a_segment_that_gets_encrypted_gets_an_encrypted_index_file(tmp_path: Path) -> None:
    filled(tmp_path).close()
    key = a_key(CHACHA)
    store = open_store(tmp_path, segment_size=SEGMENT_SIZE, key=key)

    upkeep(store)
    store.close()

    assert encoding_of(tmp_path / FIRST) == CHACHA
    index = (tmp_path / "00000001.idx").read_bytes()
    assert int.from_bytes(index[12:16], "little") == CHACHA
    again = open_store(tmp_path, segment_size=SEGMENT_SIZE, key=key)
    assert again.get(1) is not None
    again.release()


def test_a_file_that_cannot_be_renamed_costs_no_more_than_the_space(tmp_path: Path) -> None:
    class StubbornDisk(OsDisk):
        def rename(self, old: str, new: str) -> None:
            raise OSError(errno.EACCES, "no", new)

    filled(tmp_path).close()
    log = ListLog()
    store = FileStore(StubbornDisk(), str(tmp_path), log, SEGMENT_SIZE, 7, ENCODINGS["plain"][0])
    thin_out(store, 4)

    upkeep(store)

    assert [text for level, text in log.lines if "stays larger than its messages" in text]
    assert [seq for seq in range(1, 100) if store.get(seq)] == list(range(4, 100, 4))
    store.close()
