"""A message whose bytes are overwritten, with the process ending at each moment."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk
from tests.unit.store.encodings import ENCODINGS, image_of, upkeep
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

COUNT = 24
SECRET = b"the secret"
# sequences: a message alone in its segment, one in a sealed segment, one in the open segment
ALONE, SEALED, OPEN = 1, 12, COUNT


class DyingDisk(FaultyDisk):
    """Does half of the write that is call number `at`, and nothing after it."""

    def __init__(self, at: int = -1) -> None:
        super().__init__(at, errno.EIO, forever=True)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.calls <= self.at or self.at < 0:
            super().write_at(fd, data, offset)
        else:
            self.calls += 1
            self._fail()


def open_store(
    directory: Path, encoding: str, disk: OsDisk | None = None, log: ListLog | None = None
) -> FileStore:
    key, codec = ENCODINGS[encoding]
    store = FileStore(disk or OsDisk(), str(directory), log or ListLog(), 500, INCARNATION, key)
    store.writer.set_meta(b"the metadata")
    store.compactor.set_codec(codec)
    return store


def fill(store: FileStore) -> None:
    """Store messages; the first is the only one left in its segment."""
    secrets = (ALONE, SEALED, OPEN)
    for seq in range(1, COUNT + 1):
        store.store(b"s", b"", SECRET if seq in secrets else b"payload", 1000 + seq)
        if 1 < seq < SEALED and len(store.segment_paths()) == 1:
            store.drop_seq(seq)
    store.flush()
    store.sync_now()
    upkeep(store)


def erase(directory: Path, encoding: str, seq: int, at: int) -> tuple[int, bool]:
    """Erase a message with a process that ends at call `at`; return the messages before, and whether it ended."""
    disk = DyingDisk()
    store = open_store(directory, encoding, disk)
    fill(store)
    disk.at = disk.calls + at
    before = store.msgs
    store.drop_seq(seq, erase=True)
    with contextlib.suppress(StoreFailed):
        store.flush()
    came = disk.calls > disk.at
    disk.at = -1
    store.release()
    return before, came


@pytest.mark.parametrize("seq", [ALONE, SEALED, OPEN])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_kill_leaves_a_message_whole_or_removed_and_overwritten(
    tmp_path: Path, encoding: str, seq: int
) -> None:
    at, came = -1, True
    while came:
        at += 1
        directory = tmp_path / str(at)
        # given
        before, came = erase(directory, encoding, seq, at)
        # when
        log = ListLog()
        store = open_store(directory, encoding, log=log)
        # then
        message = store.get(seq)
        assert [text for _, text in log.lines if "cut short" not in text] == [], at
        assert (store.examiner.losses.msgs, store.examiner.losses.bytes) == (0, 0), at
        assert message is None or message.payload == SECRET, at
        assert store.msgs == before - (message is None), at
        assert came or message is None
        store.sync_now()
        store.release()
        kept = sum(
            SECRET in image_of(OsDisk(), path, ENCODINGS[encoding][0]) for path in directory.glob("*.seg")
        )
        assert kept == sum(store_seq != seq or message is not None for store_seq in (ALONE, SEALED, OPEN)), at
    assert at > 2


@pytest.mark.parametrize("seq", [ALONE, SEALED, OPEN])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_message_is_removed_whose_removal_a_power_failure_has_taken(
    tmp_path: Path, encoding: str, seq: int
) -> None:
    # given: the last segment as it was before
    store = open_store(tmp_path, encoding)
    fill(store)
    last = Path(store.segment_paths()[-1])
    before, msgs = last.read_bytes(), store.msgs
    store.drop_seq(seq, erase=True)
    store.flush()
    store.release()
    if seq != OPEN:
        last.write_bytes(before)
    # when
    log = ListLog()
    store = open_store(tmp_path, encoding, log=log)
    # then
    assert store.get(seq) is None
    assert (store.msgs, store.lost, store.examiner.losses.msgs) == (msgs - 1, None, 0)
    assert [text for _, text in log.lines if "cut short" not in text] == []
    store.flush()
    store.release()
    store = open_store(tmp_path, encoding)
    assert (store.get(seq), store.msgs, store.lost) == (None, msgs - 1, None)
    store.release()


@pytest.mark.parametrize("seq", [2, 5, 9])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_replica_that_ends_while_it_erases_a_message_has_lost_nothing(
    tmp_path: Path, encoding: str, seq: int
) -> None:
    # given
    key, codec = ENCODINGS[encoding]
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), 500, INCARNATION, key)
    store.compactor.set_codec(codec)
    store.replicate(7)
    for number in range(1, 10):
        store.begin_copied_entry()
        store.store(b"s", b"", SECRET if number == seq else b"payload", 1000 + number)
        store.end_copied_entry(number, 1, 1000 + number, 0, b"")
    store.sync_now()
    upkeep(store)
    # when
    store.begin_copied_entry()
    store.drop_seq(seq, erase=True)
    store.release()
    log = ListLog()
    store = FileStore(OsDisk(), str(tmp_path), log, 500, INCARNATION, key, replicated=7)
    # then
    assert store.get(seq) is None
    assert (store.msgs, store.lost, store.applied_index) == (8, None, 9)
    assert log.lines == []
    store.drop_seq(seq, erase=True)
    store.sync_now()
    store.release()
    assert [path for path in tmp_path.glob("*.seg") if SECRET in image_of(OsDisk(), path, key)] == []


class CountingDisk(OsDisk):
    """Counts the open descriptors."""

    def __init__(self) -> None:
        self.open = 0

    def open_file(self, path: str, *, create: bool = False) -> int:
        self.open += 1
        return super().open_file(path, create=create)

    def open_read_only(self, path: str) -> int:
        self.open += 1
        return super().open_read_only(path)

    def close_file(self, fd: int) -> None:
        self.open -= 1
        super().close_file(fd)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_messages_that_are_erased_hold_one_descriptor_for_each_segment(tmp_path: Path, encoding: str) -> None:
    disk = CountingDisk()
    store = open_store(tmp_path, encoding, disk)
    fill(store)
    most = disk.open + len(store.segment_paths())
    for seq in range(8, COUNT):
        store.drop_seq(seq, erase=True)
    assert disk.open <= most
    store.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_messages_are_erased_in_the_files_of_now(tmp_path: Path, encoding: str) -> None:
    store = open_store(tmp_path, encoding)
    fill(store)
    for seq in range(9, COUNT, 2):
        store.drop_seq(seq, erase=True)
        job = store.begin_upkeep()
        if job is not None:
            store.finish_upkeep(job())
        if seq % 3 == 0:
            store.sync_now()
    store.flush()
    kept = [seq for seq in range(2, COUNT + 1) if store.get(seq) is not None]
    store.sync_now()
    store.close()
    paths = sorted(tmp_path.glob("*.seg"))[1:]  # the first segment contains other removed messages
    images = [image_of(OsDisk(), path, ENCODINGS[encoding][0]) for path in paths]
    found = sum(image.count(b"payload") + image.count(SECRET) for image in images)
    assert found == len(kept)


class PoorDisk(OsDisk):
    """Refuses reads for lack of memory while `poor` is set."""

    poor = False

    def open_read_only(self, path: str) -> int:
        if self.poor:
            raise MemoryError
        return super().open_read_only(path)


def test_a_message_that_cannot_be_overwritten_is_told(tmp_path: Path) -> None:
    disk, log = PoorDisk(), ListLog()
    store = open_store(tmp_path, "zstd", disk, log)
    fill(store)
    disk.poor = True

    assert store.drop_seq(SEALED, erase=True)

    assert [text for level, text in log.lines if "could not be overwritten" in text]
    assert store.get(SEALED) is None
    store.release()
