"""The reading of a node log: its end, its losses, and its owner."""

from __future__ import annotations

from random import Random

import pytest
from tests.sim.disk import SimDisk
from tests.support.node_logs import CONF, DIRECTORY, Write, disk_with, files_of, opened, synced

from pyjs.consensus.log.files import FIRST_AT, header_in
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import CENSUS, CHECK, HEAD, Head, hash_of, head_at
from pyjs.consensus.log.replay import Replay

PEER = 1 << 32 | 1
NAME = "00000001.log"
Files = dict[str, bytes]


def filled(groups: int = 3, entries: int = 4) -> tuple[SimDisk, NodeLog]:
    """Return a log with entries of each group, each one synced separately."""
    disk = SimDisk(Random(1))
    log = opened(disk, 1, file_size=16384)
    for group in range(1, groups + 1):
        log.create(group, f"g{group}", PEER, CONF, 1, 1)
        synced(log)
    for index in range(2, entries + 2):
        for group in range(1, groups + 1):
            log.write(Write(group, (1, 0, index - 1), index, ((1, 1, bytes(40)),)), [b"p%d" % index])
            synced(log)
    return disk, log


def closed(groups: int = 3, entries: int = 4) -> Files:
    disk, log = filled(groups, entries)
    log.close()
    return files_of(disk)


def read(files: Files) -> Replay:
    replay = Replay(disk_with(files), DIRECTORY)
    for _ in replay.steps():
        pass
    return replay


def heads(data: bytes) -> list[tuple[int, Head]]:
    """Return the offset and head of each record of a file."""
    header = header_in(data, NAME)
    assert header is not None
    found, at = [], FIRST_AT
    while (head := head_at(memoryview(data), at, len(data), header.id)) is not None:
        found.append((at, head))
        at += head.size
    return found


def without(data: bytes, first: int, last: int) -> bytes:
    """Return a file in which zeros replace the records number `first` to `last`."""
    places = {head.number: (at, head.size) for at, head in heads(data)}
    start, end = places[first][0], sum(places[last])
    return data[:start] + bytes(end - start) + data[end:]


def damaged(replay: Replay) -> list[int]:
    return sorted(number for number, group in replay.groups.items() if group.is_damaged)


def test_a_directory_without_files_is_an_empty_log() -> None:
    replay = read({})
    assert (replay.groups, replay.losses, replay.next_number, replay.boot) == ({}, [], 1, 0)


def test_the_next_record_names_the_group_of_a_lost_one() -> None:
    files = closed()
    for at, head in heads(files[NAME]):
        del at
        replay = read({NAME: without(files[NAME], head.number, head.number)})
        assert damaged(replay) == ([] if head.kind == CENSUS else [head.group])
        assert not replay.lost_unknown


def test_groups_know_by_their_next_records_what_they_lost() -> None:
    files = closed()
    records = [(at, head) for at, head in heads(files[NAME]) if head.group in (1, 2)]
    first = records[2][1].number
    replay = read({NAME: without(files[NAME], first, first + 1)})
    assert damaged(replay) == [1, 2]
    assert [(loss.what, sorted(loss.groups)) for loss in replay.losses] == [("2 records lost", [1, 2])]


def test_a_census_tells_who_lost_the_last_records() -> None:
    files = closed()
    last = heads(files[NAME])[-1][1]
    assert last.kind == CENSUS
    replay = read({NAME: without(files[NAME], last.number - 2, last.number - 1)})
    assert damaged(replay) == [2, 3]


def test_without_any_later_sign_all_groups_are_damaged() -> None:
    files = closed()
    last = heads(files[NAME])[-1][1].number
    replay = read({NAME: without(files[NAME], last - 1, last)})
    assert damaged(replay) == [1, 2, 3]
    assert replay.lost_unknown


def test_a_gap_that_nothing_proves_durable_is_the_end() -> None:
    disk, log = filled()
    log.write(Write(1, (1, 0, 5)))
    log.write(Write(2, (1, 0, 5)))
    assert log.stage_commits()
    log.flush()
    data = files_of(disk)[NAME]
    number = heads(data)[-1][1].number
    replay = read({NAME: without(data, number - 1, number - 1)})
    assert (replay.losses, replay.next_number) == ([], number - 1)
    assert replay.groups[2].hard[2] == 4


def test_a_group_whose_new_start_follows_the_loss_is_intact() -> None:
    disk, log = filled()
    log.point(1, 5, 1, CONF, b"state")
    synced(log)
    log.witness()
    data = files_of(disk)[NAME]
    lost = next(head.number for _, head in heads(data) if head.group == 1 and head.last == 3)
    replay = read({NAME: without(data, lost, lost)})
    assert damaged(replay) == []
    assert [loss.groups for loss in replay.losses] == [set()]
    assert (replay.groups[1].start, replay.groups[1].state) == (5, b"state")


def test_a_lost_birth_leaves_a_group_without_a_beginning() -> None:
    files = closed()
    birth = next(head.number for _, head in heads(files[NAME]) if head.group == 2)
    replay = read({NAME: without(files[NAME], birth, birth)})
    assert damaged(replay) == [2]
    assert replay.groups[2].name == ""


def test_a_removal_that_is_lost_does_not_bring_a_group_back() -> None:
    disk, log = filled()
    log.remove(2)
    synced(log)
    log.create(2, "again", PEER + 1, CONF, 1, 1)
    synced(log)
    log.remove(3)
    synced(log)
    log.close()
    data = files_of(disk)[NAME]
    removals = [head.number for _, head in heads(data) if head.kind == 3]
    replay = read({NAME: without(data, removals[0], removals[0])})
    assert (replay.groups[2].name, damaged(replay)) == ("again", [])
    replay = read({NAME: without(data, removals[1], removals[1])})
    assert 3 not in replay.groups


def test_a_part_of_a_change_counts_as_nothing() -> None:
    disk, log = filled()
    log.write(Write(1, None, 6, ((1, 1, bytes(40)),) * 3), [b"a", b"b", b"c"])
    log.flush()
    data = files_of(disk)[NAME]
    number = heads(data)[-1][1].number
    replay = read({NAME: without(data, number, number)})
    assert (replay.losses, replay.next_number, replay.groups[1].last) == ([], number - 2, 5)


def test_a_part_of_a_change_that_was_durable_is_damage() -> None:
    disk, log = filled()
    log.write(Write(1, None, 6, ((1, 1, bytes(40)),) * 3), [b"a", b"b", b"c"])
    synced(log)
    log.close()
    data = files_of(disk)[NAME]
    number = next(head.number for _, head in heads(data) if head.last == 7)
    replay = read({NAME: without(data, number, number)})
    assert damaged(replay) == [1]


def rewritten(data: bytes, number: int, **fields: int) -> bytes:
    """Return a file in which a record has other field values and a right checksum."""
    header = header_in(data, NAME)
    assert header is not None
    at, head = next((at, head) for at, head in heads(data) if head.number == number)
    body_at = at + HEAD.size
    checked = HEAD.pack(*head._replace(**fields)) + data[body_at : body_at + head.body_size]
    end = at + len(checked) + CHECK.size
    return data[:at] + checked + CHECK.pack(hash_of(checked, header.id)) + data[end:]


@pytest.mark.parametrize(
    ("kind", "index", "fields"),
    [
        (1, 4, {"last": 9}),
        (1, 4, {"last": 1}),
        (1, 4, {"entry_term": 0}),
        (2, 1, {"last": 0}),
    ],
)
def test_a_record_that_does_not_follow_is_damage_of_its_group(
    kind: int, index: int, fields: dict[str, int]
) -> None:
    data = closed()[NAME]
    number = next(
        head.number for _, head in heads(data) if (head.kind, head.group, head.last) == (kind, 1, index)
    )
    replay = read({NAME: rewritten(data, number, **fields)})
    assert damaged(replay) == [1]
