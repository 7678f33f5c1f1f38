"""The memory used by decrypted and decompressed copies of segments, over all streams."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.unit.store.encodings import ENCODINGS, upkeep
from tests.unit.store.file_state import INCARNATION

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.segment.view import ViewCache

CHUNK = 65_536
COUNT = 1000
LIMIT = 20 * CHUNK
ENCODED = pytest.mark.parametrize("name", ["zstd", "chacha", "aes", "chacha and zstd"])


@pytest.fixture
def views() -> ViewCache:
    return ViewCache(LIMIT)


class CountingDisk(OsDisk):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.reads = 0

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        self.reads += 1
        return super().read_at(fd, size, offset)


def open_store(
    views: ViewCache, directory: Path, name: str, size: int = 1 << 20, disk: OsDisk | None = None
) -> FileStore:
    key, codec = ENCODINGS[name]
    store = FileStore(disk or OsDisk(), str(directory), ListLog(), size, INCARNATION, key, views=views)
    store.compactor.set_codec(codec)
    return store


def payload(seq: int) -> bytes:
    return Random(seq).randbytes(100) + b"%04d" % seq + b"x" * 100


def fill(store: FileStore, count: int = COUNT) -> None:
    for _ in range(count):
        seq = store.last_seq + 1
        store.store(b"s", b"", payload(seq), 1000 + seq)
        if seq % 50 == 0:
            store.flush()
    store.flush()
    store.sync_now()


def assert_whole(stores: list[FileStore], seq: int) -> None:
    for store in stores:
        message = store.get(seq)
        assert message is not None
        assert message.payload == payload(seq)


@ENCODED
def test_all_streams_together_stay_within_one_limit(views: ViewCache, tmp_path: Path, name: str) -> None:
    stores = [open_store(views, tmp_path / str(number), name) for number in range(10)]
    for store in stores:
        fill(store)
        store.writer.start_over()
        upkeep(store)
        store.maps.drop_maps()
    assert (len(views), views.held) == (0, 0)
    most = 0

    for seq in range(1, COUNT + 1):
        assert_whole(stores, seq)
        most = max(most, views.held)

    assert LIMIT - CHUNK < most <= LIMIT + CHUNK
    for store in stores:
        store.close()
    assert (len(views), views.held) == (0, 0)


@ENCODED
def test_what_is_read_all_the_time_stays(views: ViewCache, tmp_path: Path, name: str) -> None:
    disk = CountingDisk()
    busy, other = (
        open_store(views, tmp_path / "busy", name, disk=disk),
        open_store(views, tmp_path / "other", name),
    )
    for store in (busy, other):
        fill(store)
        store.writer.start_over()
        upkeep(store)
        store.maps.drop_maps()
    assert_whole([busy], 1)
    reads = disk.reads

    for seq in range(1, COUNT + 1):
        assert_whole([busy], 1)
        assert_whole([other], seq)

    assert disk.reads == reads
    for store in (busy, other):
        store.close()


@ENCODED
def test_small_segments_are_held_in_any_number_that_fits(views: ViewCache, tmp_path: Path, name: str) -> None:
    store = open_store(views, tmp_path, name, size=20_000)
    fill(store, 6000)
    upkeep(store)
    store.maps.drop_maps()
    for seq in range(1, 6001):
        assert_whole([store], seq)
    count, size = len(views), views.held
    assert count == LIMIT // (size // count)
    assert LIMIT - 20_000 <= size <= LIMIT
    store.close()
    assert (len(views), views.held) == (0, 0)


@pytest.mark.parametrize("name", ["chacha", "aes"])
def test_what_is_written_behind_what_was_read_counts(views: ViewCache, tmp_path: Path, name: str) -> None:
    stores = [open_store(views, tmp_path / str(number), name) for number in range(8)]
    for _ in range(12):
        for store in stores:
            fill(store, 100)
            assert_whole([store], store.last_seq)
        assert views.held <= LIMIT + CHUNK
    for store in stores:
        assert_whole([store], 1)
        assert_whole([store], store.last_seq)
        store.close()


@pytest.mark.parametrize("name", ["chacha"])
def test_a_message_larger_than_the_limit_is_served(views: ViewCache, tmp_path: Path, name: str) -> None:
    store = open_store(views, tmp_path, name, size=4 << 20)
    body = Random(3).randbytes(LIMIT * 3)
    seq = store.store(b"s", b"", body, 1000)
    store.flush()
    store.writer.start_over()
    for _ in range(3):
        message = store.get(seq)
        assert message is not None
        assert message.payload == body
    store.close()
