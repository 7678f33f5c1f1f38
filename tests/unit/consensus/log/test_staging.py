"""Records that wait to be written: their files, and when a census is written with them."""

from __future__ import annotations

from random import Random

from tests.sim.disk import SimDisk
from tests.support.node_logs import DIRECTORY

from pyjs.consensus.log import staging
from pyjs.consensus.log.group import StoredGroup
from pyjs.consensus.log.records import CENSUS, WRITE, head_at
from pyjs.consensus.log.shelf import Shelf
from pyjs.consensus.log.staging import Staging


def begun(file_size: int = 4096) -> tuple[Staging, Shelf, dict[int, StoredGroup]]:
    disk = SimDisk(Random(1))
    disk.make_dirs(DIRECTORY)
    groups: dict[int, StoredGroup] = {}
    shelf = Shelf(disk, DIRECTORY, file_size)
    end = Staging(shelf, groups, 1, file_size)
    end.begin_file(0, 1)
    return end, shelf, groups


def kinds_of(shelf: Shelf, disk_path: str) -> list[int]:
    file = shelf.newest
    data = memoryview(shelf._disk.read_file(disk_path))
    found, at = [], 72
    while (head := head_at(data, at, file.end, file.id)) is not None:
        found.append(head.kind)
        at += head.size
    return found


def test_a_change_that_does_not_fit_begins_a_file() -> None:
    end, shelf, _ = begun()
    first = shelf.newest
    assert end.reserve(1000) is first
    second = end.reserve(first.end)
    assert (second.number, shelf.newest) == (2, second)
    assert second.size > 4096


def test_a_census_comes_after_so_many_bytes() -> None:
    end, shelf, groups = begun(65536)
    groups[5] = StoredGroup(5)
    for _ in range(2):
        end.reserve(300)
        end.stage(groups[5], WRITE, 0, 0, b"", bytes(staging.CENSUS_EVERY // 64))
    end.census_due_at = end.at
    end.reserve(300)
    end.stage(groups[5], WRITE, 0, 0)
    end.write()
    assert kinds_of(shelf, shelf.newest.path) == [CENSUS, WRITE, WRITE, CENSUS, WRITE]


def test_a_census_that_does_not_fit_begins_a_file() -> None:
    end, shelf, groups = begun()
    groups[5] = StoredGroup(5)
    end.reserve(0)
    end.stage(groups[5], WRITE, 0, 0, b"", bytes(shelf.newest.end - end.at - 112))
    end.stage_census()
    assert shelf.newest.number == 2


def test_nothing_staged_is_nothing_written() -> None:
    end, shelf, _ = begun()
    assert not end.is_empty
    end.write()
    assert end.is_empty
    calls = shelf._disk.calls  # type: ignore[attr-defined]
    end.write()
    assert shelf._disk.calls == calls  # type: ignore[attr-defined]
    end.forget(3)
    end.stage_census()
    assert end.seal(9).group == 0
