"""Stores of workers that are not started: reported, or taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjs.base.disk import OsDisk
from pyjs.store.format.layout import StoreLock, StoreLocked
from pyjs.store.format.workers import StoreShared, check_names, check_workers, take_over, worker_roots


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in (2, 3):
        (tmp_path / f".workers/{number}/$G/streams/.deleting-0-S").mkdir(parents=True)
        (tmp_path / f".workers/{number}/.lock").touch()
    (tmp_path / ".workers/other").touch()
    return tmp_path


def add(root: Path, number: int, name: str) -> None:
    path = root / f".workers/{number}/$G/streams/{name}"
    path.mkdir()
    (path / "meta.a").write_text(name)


def test_streams_of_a_worker_that_is_not_started_are_named(root: Path) -> None:
    disk = OsDisk()
    assert worker_roots(disk, str(root)) == [f"{root}/.workers/2", f"{root}/.workers/3"]
    check_workers(disk, str(root), 1)
    add(root, 3, "S")
    check_workers(disk, str(root), 3)
    with pytest.raises(
        StoreShared, match=r"1 streams are in .*/3, stores of workers above .* at least 3 workers"
    ):
        check_workers(disk, str(root), 2)


def test_the_first_worker_takes_over_streams_by_moving_their_directories(root: Path) -> None:
    for number, name in ((2, "A"), (3, "B"), (3, "C")):
        add(root, number, name)
    assert take_over(OsDisk(), str(root), 3) == 0
    assert take_over(OsDisk(), str(root), 2) == 2
    assert [(root / f"$G/streams/{name}/meta.a").read_text() for name in "BC"] == ["B", "C"]
    assert take_over(OsDisk(), str(root), 1) == 1
    assert take_over(OsDisk(), str(root), 1) == 0
    check_workers(OsDisk(), str(root), 1)


def test_nothing_is_moved_if_a_name_is_taken_or_the_worker_runs(root: Path) -> None:
    add(root, 2, "A")
    add(root, 2, "B")
    lock = StoreLock(OsDisk(), f"{root}/.workers/2")
    with pytest.raises(StoreLocked):
        take_over(OsDisk(), str(root), 1)
    lock.release()
    (root / "$G/streams/B").mkdir(parents=True)
    with pytest.raises(StoreShared, match="are two streams of one name"):
        take_over(OsDisk(), str(root), 1)
    assert (root / ".workers/2/$G/streams/A").exists()


def test_a_stream_in_the_stores_of_two_workers_is_refused(root: Path) -> None:
    for number, name in ((2, "A"), (3, "B")):
        add(root, number, name)
    (root / ".workers/3/OTHER/streams/A").mkdir(parents=True)
    (root / "$G/streams/C").mkdir(parents=True)
    check_names(OsDisk(), str(root))
    add(root, 3, "A")
    with pytest.raises(
        StoreShared, match=r"2/\$G/streams/A and .*/3/\$G/streams/A are two streams of one name"
    ):
        check_names(OsDisk(), str(root))
