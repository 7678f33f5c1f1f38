"""Files of a node log on the disk: their names, and when they are reused."""

from __future__ import annotations

from random import Random

from tests.sim.disk import SimDisk
from tests.support.node_logs import DIRECTORY

from pyjs.consensus.log.files import Header, LogFile, Seal, log_name, seal_in
from pyjs.consensus.log.shelf import Shelf


def shelf() -> Shelf:
    disk = SimDisk(Random(1))
    disk.make_dirs(DIRECTORY)
    return Shelf(disk, DIRECTORY, 4096)


def add(shelf: Shelf, number: int) -> LogFile:
    """Add a file with some bytes that no group needs."""
    path = f"{DIRECTORY}/{log_name(number)}"
    file = LogFile(Header(4096, number, number, 1, number, 0), path)
    shelf.add(file, Seal(number, 100, 0, number, 1) if shelf.files else None)
    shelf.write(file, 0, b"x" * 100)
    return file


def sync(shelf: Shelf, mark: int) -> None:
    job = shelf.sync_job(mark)
    assert job is not None
    assert job() is None
    shelf.synced(job)


def names(shelf: Shelf) -> list[str]:
    return shelf._disk.list_dir(DIRECTORY)


def test_the_oldest_file_is_a_spare_when_what_replaces_it_is_durable() -> None:
    all_files = shelf()
    add(all_files, 1).free_at = 7
    add(all_files, 2)
    sync(all_files, 6)
    assert names(all_files) == ["00000001.log", "00000002.log"]
    all_files.write(all_files.newest, 100, b"y")
    sync(all_files, 7)
    assert names(all_files) == ["00000001.spare", "00000002.log"]
    assert all_files.oldest is all_files.newest


def test_a_spare_is_used_when_its_name_is_durable_and_not_before() -> None:
    all_files = shelf()
    add(all_files, 1).free_at = 1
    add(all_files, 2)
    sync(all_files, 1)
    add(all_files, 3)
    assert names(all_files) == ["00000001.spare", "00000002.log", "00000003.log"]
    sync(all_files, 2)
    add(all_files, 4)
    assert names(all_files) == ["00000002.log", "00000003.log", "00000004.log"]


def test_a_file_is_sealed_when_the_next_one_is_durable() -> None:
    all_files = shelf()
    first, _ = add(all_files, 1), add(all_files, 2)
    data = all_files._disk.read_file(first.path)
    assert seal_in(data[-128:], first.id) is None
    sync(all_files, 2)
    assert seal_in(all_files._disk.read_file(first.path)[-128:], first.id) == Seal(2, 100, 0, 2, 1)


def test_more_spares_than_needed_and_those_of_another_size_are_removed() -> None:
    all_files = shelf()
    for number in (1, 2, 3, 4):
        add(all_files, number)
    for number in (1, 2, 3):
        all_files.retire(f"{DIRECTORY}/{log_name(number)}", 4096)
    all_files.retire(f"{DIRECTORY}/{log_name(4)}", 8192)
    assert names(all_files) == ["00000001.spare", "00000002.spare"]


def test_a_start_finds_spares_and_removes_what_was_being_made() -> None:
    all_files = shelf()
    disk = all_files._disk
    for name in ("00000007.spare", "fresh.tmp", "other"):
        fd = disk.open_file(f"{DIRECTORY}/{name}", create=True)
        disk.truncate(fd, 4096)
        disk.close_file(fd)
    all_files.find_spares()
    assert names(all_files) == ["00000007.spare", "other"]
    assert all_files.fresh_job() is None
    add(all_files, 8)
    assert names(all_files) == ["00000008.log", "other"]
    all_files.close()
    all_files.close()
