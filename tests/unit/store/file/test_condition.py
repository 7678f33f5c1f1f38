"""The condition of a file store, and its permitted changes."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.unit.store.file_state import open_store

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.condition import StoreState
from pyjs.store.file.store import FileStore

IO_ERROR = OSError(errno.EIO, "Input/output error")
NO_DESCRIPTORS = OSError(errno.EMFILE, "Too many open files")


def test_a_store_takes_messages_when_its_recovery_has_ended(tmp_path: Path) -> None:
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), recovered=False)
    assert store.condition.state == StoreState.STORE_RECOVERING
    for _ in store.recover_steps():
        pass
    assert store.condition.state == StoreState.STORE_OPEN
    assert store.store(b"s", b"", b"x", 1) == 1
    store.close()


def test_a_store_without_descriptors_takes_messages_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.sync_failed(NO_DESCRIPTORS)
    assert store.condition.state == StoreState.STORE_FULL
    assert store.store(b"s", b"", b"x", 1) == 0
    assert store.try_resume()
    assert store.condition.state == StoreState.STORE_OPEN
    assert store.error is None
    assert store.store(b"s", b"", b"x", 1) == 1
    store.close()


def test_no_sync_is_believed_after_one_that_failed_whatever_follows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.writer.sync_failed(IO_ERROR)
    store.writer.sync_failed(NO_DESCRIPTORS)
    assert store.condition.state == StoreState.STORE_SYNC_LOST
    assert not store.try_resume()
    assert store.store(b"s", b"", b"x", 1) == 0
    store.release()


def test_a_closed_store_stays_closed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    store.writer.sync_failed(NO_DESCRIPTORS)
    assert store.condition.state == StoreState.STORE_CLOSED
    assert not store.try_resume()
    assert store.failed
