"""Encrypted and compressed segments of which a part becomes unreadable while the store is in use."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.store.encodings import ENCODINGS, upkeep
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

COUNT = 500
SEGMENT_SIZE = 1 << 20
PAGE = 4096
FIRST = "00000001.seg"
ENCODED = pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "plain"])
ENCRYPTED = pytest.mark.parametrize("name", ["chacha", "aes"])


class BadPage(OsDisk):
    """Cannot read one page of the first segment once `page` is set."""

    def __init__(self) -> None:
        self.page: int | None = None

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        if self.page is not None and os.readlink(f"/proc/self/fd/{fd}").endswith(FIRST):
            at = self.page * PAGE
            if offset < at + PAGE and offset + size > at:
                raise OSError(errno.EIO, "Input/output error")
        return super().read_at(fd, size, offset)

    def map_file(self, fd: int, size: int) -> Any:
        found = super().map_file(fd, size)
        if self.page is not None and os.readlink(f"/proc/self/fd/{fd}").endswith(FIRST):
            data, at = bytes(found), self.page * PAGE
            found = mmap.mmap(-1, size)
            found[:] = data[:at] + bytes(len(data[at : at + PAGE])) + data[at + PAGE :]
        return found


class Wanting(OsDisk):
    """Cannot open a file once `failure` is set."""

    failure: tuple[type[Exception], *tuple[object, ...]] | None = None

    def open_read_only(self, path: str) -> int:
        if self.failure is not None:
            raise self.failure[0](*self.failure[1:])
        return super().open_read_only(path)

    def read_file(self, path: str) -> bytes:
        if self.failure is not None:
            raise self.failure[0](*self.failure[1:])
        return super().read_file(path)


def open_store(directory: Path, name: str, disk: OsDisk, log: ListLog) -> FileStore:
    key, codec = ENCODINGS[name]
    store = FileStore(disk, str(directory), log, SEGMENT_SIZE, INCARNATION, key)
    store.compactor.set_codec(codec)
    return store


def payload(seq: int) -> bytes:
    return Random(seq).randbytes(100) + b"%04d" % seq + b"x" * 100


def fill(store: FileStore, first: int = 1, count: int = COUNT) -> None:
    for seq in range(first, first + count):
        store.store(b"s", b"", payload(seq), 1000 + seq)
        if seq % 50 == 0:
            store.flush()
    store.flush()
    store.sync_now()


def readable(store: FileStore) -> list[int]:
    """Return the sequences with the payload that was stored; no other payload may be returned."""
    messages = [store.get(seq) for seq in range(1, COUNT + 1)]
    there = [message for message in messages if message is not None]
    assert all(message.payload == payload(message.seq) for message in there)
    return [message.seq for message in there]


def assert_lost_once(store: FileStore, log: ListLog) -> None:
    """Read everything twice: each loss is counted and logged exactly once."""
    left = readable(store)
    lost = sorted(set(range(1, COUNT + 1)) - set(left))
    assert lost
    assert store.lost is not None
    assert store.lost[:2] == (len(lost), lost)
    assert store.lost[2] > 0
    assert store.msgs == len(left)
    told = list(log.lines)
    assert [line for _, line in told if "messages were damaged and are lost" in line]
    assert not [line for _, line in told if "cannot be read" in line]
    assert readable(store) == left
    assert log.lines == told


@pytest.mark.parametrize("name", ["plain", "chacha", "aes"])  # with other encodings, a start reads the end
@pytest.mark.parametrize("failure", [(OSError, errno.EMFILE, "Too many open files"), (MemoryError,)])
def test_damage_is_judged_when_there_are_descriptors_and_memory_for_that(
    tmp_path: Path, name: str, failure: tuple[type[Exception], *tuple[object, ...]]
) -> None:
    disk, log = Wanting(), ListLog()
    store = open_store(tmp_path, name, disk, log)
    fill(store)
    store.writer.start_over()
    upkeep(store)
    store.close()
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[len(data) * 3 // 4] ^= 1
    (tmp_path / FIRST).write_bytes(data)
    store = open_store(tmp_path, name, disk, log)

    disk.failure = failure
    with pytest.raises(NotNow):
        store.get(1)
    disk.failure = None
    assert store.get(1) is not None
    disk.failure = failure
    for seq in range(1, COUNT + 1):
        with suppress(NotNow):
            assert store.get(seq) is not None
    assert store.lost is None
    disk.failure = None

    left = readable(store)
    assert store.lost is not None
    assert store.lost[1] == sorted(set(range(1, COUNT + 1)) - set(left)) != []
    store.close()


@ENCODED
@pytest.mark.parametrize("page", [0, 1, 4, 12])
def test_a_page_that_cannot_be_read_any_more_costs_what_is_in_it(
    tmp_path: Path, name: str, page: int
) -> None:
    disk, log = BadPage(), ListLog()
    store = open_store(tmp_path, name, disk, log)
    fill(store)
    store.writer.start_over()
    upkeep(store)
    store.close()
    store = open_store(tmp_path, name, disk, log)

    disk.page = page

    assert_lost_once(store, log)
    if page and not ENCODINGS[name][1]:
        assert store.examiner.losses.msgs in range(17, 23)
    store.close()
    again = open_store(tmp_path, name, disk, ListLog())
    assert readable(again) == readable(store) or page == 0
    assert again.lost is not None
    again.release()


@ENCRYPTED
@pytest.mark.parametrize("page", [1, 4, 12, 28])
def test_the_open_segment_goes_on_behind_a_page_that_cannot_be_read(
    tmp_path: Path, name: str, page: int
) -> None:
    disk, log = BadPage(), ListLog()
    store = open_store(tmp_path, name, disk, log)
    fill(store, 1, COUNT - 50)
    disk.page = page
    fill(store, COUNT - 49, 50)

    assert_lost_once(store, log)

    assert store.examiner.losses.msgs in range(10, 23)
    fill(store, COUNT + 1, 10)
    assert [store.get(seq).payload for seq in range(COUNT + 1, COUNT + 11)] == [
        payload(seq) for seq in range(COUNT + 1, COUNT + 11)
    ]
    store.close()


@ENCRYPTED
def test_a_page_that_goes_bad_after_another_one_is_found_as_well(tmp_path: Path, name: str) -> None:
    disk, log = BadPage(), ListLog()
    store = open_store(tmp_path, name, disk, log)
    fill(store)
    store.writer.start_over()
    disk.page = 4
    assert_lost_once(store, log)
    before = store.examiner.losses.msgs

    disk.page = 12
    store.maps.drop_maps()

    assert_lost_once(store, log)
    assert store.examiner.losses.msgs in range(before + 17, before + 23)
    store.close()


@ENCRYPTED
def test_a_long_message_is_never_served_with_a_hole(tmp_path: Path, name: str) -> None:
    disk, log = BadPage(), ListLog()
    store = open_store(tmp_path, name, disk, log)
    body = Random(7).randbytes(200_000)
    store.store(b"s", b"", body, 1000)
    store.flush()
    store.sync_now()

    disk.page = 20

    assert store.get(1) is None
    assert store.lost is not None
    assert store.lost[:2] == (1, [1])
    store.close()


@ENCODED
@pytest.mark.parametrize("size", [0, 70, PAGE, 3 * PAGE + 100])
@pytest.mark.parametrize("seen_before", [False, True])
def test_what_is_in_front_of_a_cut_is_served_and_the_rest_counted(
    tmp_path: Path, name: str, size: int, seen_before: bool
) -> None:
    log = ListLog()
    store = open_store(tmp_path, name, OsDisk(), log)
    fill(store)
    store.writer.start_over()
    upkeep(store)
    if seen_before:
        assert store.get(1) is not None
        assert store.get(COUNT) is not None

    os.truncate(tmp_path / FIRST, size)
    store.maps.drop_maps()

    assert_lost_once(store, log)
    store.close()


@ENCRYPTED
@pytest.mark.parametrize("size", [PAGE, 3 * PAGE + 100])
def test_a_cut_open_segment_is_written_on(tmp_path: Path, name: str, size: int) -> None:
    log = ListLog()
    store = open_store(tmp_path, name, OsDisk(), log)
    fill(store)
    os.truncate(tmp_path / FIRST, size)

    assert_lost_once(store, log)

    left = readable(store)
    fill(store, COUNT + 1, 1)
    assert store.get(COUNT + 1).payload == payload(COUNT + 1)
    copy = shutil.copytree(tmp_path, tmp_path / "copy")
    store.close()
    again = open_store(copy, name, OsDisk(), ListLog())  # as a killed process leaves it
    assert readable(again) == left
    assert again.get(COUNT + 1).payload == payload(COUNT + 1)
    again.release()
