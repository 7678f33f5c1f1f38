"""A store that cannot begin another segment: its messages remain readable, and it continues later."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 500
IN_SEGMENT = 4  # messages in a segment


class FullDisk(OsDisk):
    """While `full`, has no room for another file or its first bytes, or no descriptor for them."""

    def __init__(self, call: str, error: int = errno.ENOSPC) -> None:
        self.call = call
        self.error = error
        self.full = False

    def sync_dir(self, path: str) -> None:
        if self.full and self.call == "sync_dir":
            raise OSError(self.error, errno.errorcode[self.error])
        super().sync_dir(path)

    def open_file(self, path: str, *, create: bool = False) -> int:
        if self.full and create and self.call == "open_file":
            raise OSError(self.error, errno.errorcode[self.error])
        return super().open_file(path, create=create)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        if self.full and offset == 0 and self.call == "allocate":
            raise OSError(self.error, errno.errorcode[self.error])
        super().allocate(fd, offset, size)


def payload(seq: int) -> bytes:
    return b"%050d" % seq


def found(store: FileStore) -> list[int]:
    """Return the sequences with the payload that was stored."""
    messages = [store.get(seq) for seq in range(1, store.last_seq + 1)]
    return [message.seq for message in messages if message and message.payload == payload(message.seq)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EACCES])
@pytest.mark.parametrize("call", ["open_file", "allocate"])
def test_what_is_stored_can_be_read_when_a_segment_cannot_begin(
    tmp_path: Path, call: str, error: int
) -> None:
    disk, log = FullDisk(call, error), ListLog()
    store = FileStore(disk, str(tmp_path), log, SEGMENT_SIZE, INCARNATION)
    stored = list(range(1, 2 * IN_SEGMENT + 1))
    for seq in stored:
        store.store(b"s", b"", payload(seq), 1000)
    store.flush()
    disk.full = True

    store.store(b"s", b"", payload(9), 1000)
    with pytest.raises(StoreFailed):
        store.flush()

    assert found(store) == stored
    store.sync_now()
    store.maps.drop_maps()
    assert found(store) == stored

    disk.full = False
    assert store.try_resume()
    seq = store.last_seq + 1
    assert store.store(b"s", b"", payload(seq), 1000) == seq
    assert found(store) == [*stored, seq]
    store.close()
    assert [text for level, text in log.lines if "damaged" in text] == []
    again = FileStore(OsDisk(), str(tmp_path), log, SEGMENT_SIZE, INCARNATION)
    assert found(again) == [*stored, seq]
    again.release()


def test_a_message_that_never_got_into_a_file_can_be_erased(tmp_path: Path) -> None:
    disk = FullDisk("allocate")
    store = FileStore(disk, str(tmp_path), ListLog(), SEGMENT_SIZE, INCARNATION)
    for seq in range(1, IN_SEGMENT + 1):
        store.store(b"s", b"", payload(seq), 1000)
    store.flush()
    disk.full = True

    seq = store.store(b"s", b"", payload(IN_SEGMENT + 1), 1000)
    assert store.drop_seq(seq, True)

    assert found(store) == list(range(1, IN_SEGMENT + 1))
    store.release()


def test_a_sync_for_which_there_was_no_descriptor_is_made_up_for(tmp_path: Path) -> None:
    disk = FullDisk("sync_dir", errno.EMFILE)
    store = FileStore(disk, str(tmp_path), ListLog(), SEGMENT_SIZE, INCARNATION)
    store.store(b"s", b"", payload(1), 1000)
    store.flush()
    job = store.begin_sync()
    store.store(b"s", b"", payload(2), 1000)
    disk.full = True
    store.finish_sync(job, job())

    with pytest.raises(StoreFailed):
        store.flush()
    store.sync_now()
    assert found(store) == [1]
    assert store.syncs.synced_mark == 0

    disk.full = False
    assert store.try_resume()
    assert store.store(b"s", b"", payload(3), 1000) == 3
    store.flush()
    assert store.dirty
    job = store.begin_sync()
    assert job.directory == str(tmp_path)
    store.finish_sync(job, job())
    assert store.syncs.synced_mark == store.syncs.written_mark
    store.close()
    again = FileStore(OsDisk(), str(tmp_path), ListLog(), SEGMENT_SIZE, INCARNATION)
    assert found(again) == [1, 3]
    again.release()


def test_a_sync_that_failed_otherwise_is_final(tmp_path: Path) -> None:
    disk = FullDisk("sync_dir", errno.EIO)
    store = FileStore(disk, str(tmp_path), ListLog(), SEGMENT_SIZE, INCARNATION)
    store.store(b"s", b"", payload(1), 1000)
    store.flush()
    disk.full = True
    job = store.begin_sync()
    store.finish_sync(job, job())
    disk.full = False

    assert not store.try_resume()
    store.release()


class HalfDisk(OsDisk):
    """While `full`, a write ends in the middle, as on a file system that reserves no space."""

    def __init__(self) -> None:
        self.full = False

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.full:
            super().write_at(fd, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, offset)


def test_the_rest_of_a_write_that_found_no_room_is_no_damage_later(tmp_path: Path) -> None:
    disk = HalfDisk()
    store = FileStore(disk, str(tmp_path), ListLog(), 4096, INCARNATION)
    assert store.store(b"s", b"", payload(1), 1000) == 1
    store.flush()
    disk.full = True
    for seq in range(2, 10):
        assert store.store(b"s", b"", payload(seq), 1000) == seq
    with pytest.raises(StoreFailed):
        store.flush()
    disk.full = False
    assert store.try_resume()
    assert store.store(b"s", b"", payload(10), 1000) == 10
    store.flush()  # and then the process is killed

    again = FileStore(OsDisk(), str(tmp_path), ListLog(), 4096, INCARNATION)

    assert found(again) == [1, 10]
    assert again.lost is None
    assert again.last_seq == 10
    again.release()
    store.release()
