"""The search for the positions of sources in the headers of stored messages."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.jetstream.mirror.copier import SourceSearch, last_sources
from pyjs.store.file.store import FileStore

KEY = b"O > >"


class WantingDisk(OsDisk):
    """A disk that can be made to open no more files for reading, as if file descriptors had run out."""

    def __init__(self) -> None:
        self.is_short = False

    def open_read_only(self, path: str) -> int:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open_read_only(path)


def header(position: bytes) -> bytes:
    return b"NATS/1.0\r\nNats-Stream-Source: O %b > > s.a ident\r\n\r\n" % position


def store_with(directory: Path, *positions: bytes) -> tuple[WantingDisk, FileStore]:
    """Return a reopened store that has a segment for each message."""
    disk = WantingDisk()
    store = FileStore(disk, str(directory), ListLog(), 100, INCARNATION)
    for position in positions:
        store.store(b"s", header(position), b"x" * 80, 1)
    store.close()
    return disk, FileStore(disk, str(directory), ListLog(), 100, INCARNATION)


def test_a_search_waits_for_a_message_that_cannot_be_read_now(tmp_path: Path) -> None:
    disk, store = store_with(tmp_path, b"6", b"7")
    search = SourceSearch(store, 0, {KEY})

    disk.is_short = True
    with pytest.raises(NotNow):
        search.go_on(10)
    disk.is_short = False

    assert not search.go_on(10)
    assert search.found == {KEY: (7, b"ident")}


def test_a_search_without_steps_passes_such_a_message_by(tmp_path: Path) -> None:
    disk, store = store_with(tmp_path, b"6", b"7")
    disk.is_short = True

    assert last_sources(store, 0, {KEY}) == {}


@pytest.mark.parametrize("position", [b"x", b"-1", b""])
def test_a_header_that_a_client_has_written_is_passed_by(tmp_path: Path, position: bytes) -> None:
    _, store = store_with(tmp_path, b"6", position)

    assert last_sources(store, 0, {KEY}) == {KEY: (6, b"ident")}
