"""The mark of a failed sync, and the second write of a file."""

from __future__ import annotations

import errno
from pathlib import Path

from pyjs.base.disk import PAGE_SIZE, OsDisk
from pyjs.base.log import ListLog
from pyjs.store.format.layout import UNSYNCED
from pyjs.store.format.lost_sync import forget_lost_sync, note_lost_sync, write_again


class BadDisk(OsDisk):
    """One page is unreadable; records where bytes are written."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        if offset == PAGE_SIZE:
            raise OSError(errno.EIO, "Input/output error")
        return super().read_at(fd, size, offset)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.written.append((offset, len(data)))
        super().write_at(fd, data, offset)


def test_all_pages_that_can_be_read_are_written_again(tmp_path: Path) -> None:
    disk, path = BadDisk(), tmp_path / "f"
    content = b"abcd" * PAGE_SIZE + b"end"
    path.write_bytes(content)

    write_again(disk, str(path))

    assert path.read_bytes() == content
    assert disk.written == [
        (0, PAGE_SIZE),
        (2 * PAGE_SIZE, PAGE_SIZE),
        (3 * PAGE_SIZE, PAGE_SIZE),
        (4 * PAGE_SIZE, 3),
    ]


def test_the_mark_stays_until_it_is_removed(tmp_path: Path) -> None:
    disk, log, directory = OsDisk(), ListLog(), str(tmp_path)
    assert not (tmp_path / UNSYNCED).exists()

    note_lost_sync(disk, directory, log)
    note_lost_sync(disk, directory, log)
    assert (tmp_path / UNSYNCED).exists()
    forget_lost_sync(disk, directory)
    forget_lost_sync(disk, directory)

    assert not (tmp_path / UNSYNCED).exists()
    assert log.lines == []


def test_a_mark_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    log = ListLog()

    note_lost_sync(OsDisk(), f"{tmp_path}/none", log)

    ((level, text),) = log.lines
    assert level == "WRN"
    assert "will not know that a sync failed" in text
    assert f"create the empty file {tmp_path}/none/{UNSYNCED}" in text
