"""Superfluous files: they are removed when the data that replaces them is durable, not before."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.file_state import open_store

from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 500


def two_segments(directory: Path) -> FileStore:
    """Return a store with two segments; the first one has no messages left."""
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    while len(store.segment_paths()) < 2:
        store.store(b"s", b"", b"payload", 1000)
    store.flush()
    store.sync_now()
    for seq in range(1, store.last_seq):
        store.drop_seq(seq)
    return store


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.seg"))


def test_a_file_stays_until_the_commit_after_its_last_message(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.sync_now()

    assert store.begin_removal() is None

    assert files(tmp_path) == ["00000001.seg", "00000002.seg"]
    store.release()


def test_a_file_stays_until_that_commit_is_on_the_medium(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.flush()
    assert store.begin_removal() is None
    job = store.begin_sync()
    assert store.begin_removal() is None

    store.finish_sync(job, job())

    removal = store.begin_removal()
    assert removal is not None
    assert files(tmp_path) == ["00000001.seg", "00000002.seg"]
    store.finish_removal(removal())
    assert files(tmp_path) == ["00000002.seg"]
    store.close()


def test_no_second_file_goes_while_one_is_being_removed(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.flush()
    job = store.begin_sync()
    store.finish_sync(job, job())
    removal = store.begin_removal()
    assert removal is not None

    assert store.begin_removal() is None

    store.finish_removal(removal())
    store.close()


def test_a_file_goes_after_the_commit_of_a_segment_that_begins_with_new_metadata(tmp_path: Path) -> None:
    store = two_segments(tmp_path)

    store.writer.start_over()
    store.sync_now()

    assert "00000001.seg" not in files(tmp_path)
    store.close()
