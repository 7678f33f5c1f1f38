"""Durable commits, and the bytes that sync jobs may rely on."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

from tests.unit.store.file.test_full_disk import FullDisk
from tests.unit.store.file_state import INCARNATION, open_store

from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.segment.census import agrees
from pyjs.store.segment.index_file import decode_index
from pyjs.store.segment.scan import scan_segment


def test_no_sync_is_believed_after_one_that_failed(tmp_path: Path) -> None:
    disk = FullDisk("sync_dir", errno.EIO)
    store = FileStore(disk, str(tmp_path), ListLog(), 500, INCARNATION)
    store.store(b"s", b"", b"1", 1000)
    store.flush()
    job = store.begin_sync()
    store.store(b"s", b"", b"2", 1000)
    store.flush()
    disk.full = True
    store.finish_sync(job, job())
    disk.full = False

    job = store.begin_sync()
    store.finish_sync(job, job())

    assert store.sync_lost
    assert store.syncs.synced_mark == 0
    store.release()


def test_a_sync_beside_a_job_knows_what_the_job_knows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.store(b"s", b"", b"1", 1000)
    store.flush()
    job = store.begin_sync()
    job.failure = OSError(errno.EIO, "it failed when room was made for other files")

    store.sync_now()

    assert store.sync_lost
    store.release()


def test_a_job_may_outlive_its_store(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=4096)
    while len(store.segment_paths()) < 2:
        store.store(b"s", b"", b"payload", 1000 + store.last_seq)
    store.flush()
    job = store.begin_sync()
    store.purge(store.make_filter(()))
    store.flush()

    del store
    gc.collect()

    assert job() is None
    index, segment = tmp_path / "00000001.idx", tmp_path / "00000001.seg"
    assert agrees(decode_index(index.read_bytes()), scan_segment(segment.read_bytes()))
