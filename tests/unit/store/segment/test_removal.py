"""Jobs remove superfluous segments, each when the removal of the earlier ones is durable."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.file_state import open_store

from pyjs.store.file.store import FileStore


def two_segments(directory: Path) -> FileStore:
    """Return a store with a full first segment and an open second one."""
    store = open_store(directory, segment_size=4096)
    for _ in range(5):
        store.store(b"s", b"", bytes(900), 1)
    store.flush()
    return store


def names(directory: Path) -> list[str]:
    """Return the names of the segments that exist."""
    return sorted(path.name for path in directory.glob("*.seg"))


def sync(store: FileStore) -> None:
    """Sync as the server does, without the upkeep after it."""
    while (job := store.begin_sync()) is not None:
        store.finish_sync(job, job())


def test_a_superfluous_segment_goes_by_a_job_after_the_sync(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.purge(store.make_filter(()), 5)
    store.flush()
    assert store.begin_upkeep() is None  # no durable record shows yet that it is superfluous
    sync(store)
    assert names(tmp_path) == ["00000001.seg", "00000002.seg"]
    job = store.begin_upkeep()
    assert job is not None
    assert not store.wants_upkeep  # one at a time
    store.finish_upkeep(job())
    assert names(tmp_path) == ["00000002.seg"]
    assert store.begin_upkeep() is None


def test_a_full_disk_does_not_keep_superfluous_segments(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.purge(store.make_filter(()), 5)
    store.flush()
    sync(store)
    store.writer.sync_failed(OSError(28, "No space left on device"))
    job = store.begin_upkeep()
    assert job is not None
    store.finish_upkeep(job())
    assert names(tmp_path) == ["00000002.seg"]


def test_a_closed_store_begins_no_removal(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.purge(store.make_filter(()), 5)
    store.flush()
    sync(store)
    store.release()
    assert store.begin_upkeep() is None
