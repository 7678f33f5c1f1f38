"""The node log as its owner uses it: staging, writing, syncing, and reading back.

Long because all tests use the same helpers.
"""

from __future__ import annotations

import errno
from random import Random

import pytest
from tests.sim.disk import SimDisk
from tests.support.disk import Crash
from tests.support.node_logs import CONF, DIRECTORY, Write, content, files_of, opened, synced

from pyjs.base.errors import CorruptRecord, NotNow, StoreFailed
from pyjs.base.log import ListLog
from pyjs.consensus.log.node_log import NodeLog

PEER = 1 << 32 | 1
BODY = bytes(40)


class Node:
    """A log that a test fills and reopens."""

    def __init__(self, file_size: int = 4096) -> None:
        self.disk = SimDisk(Random(1))
        self.file_size = file_size
        self.starts = 0
        self.lines: list[tuple[str, str]] = []
        self.machine: int | None = 0
        self.open()

    def open(self) -> NodeLog:
        self.starts += 1
        log = ListLog()
        self.log = opened(self.disk, self.starts, file_size=self.file_size, log=log, machine=self.machine)
        self.lines = log.lines
        return self.log

    def killed(self) -> NodeLog:
        self.disk.end_process()
        return self.open()

    def create(self, group: int, name: str = "g") -> None:
        self.log.create(group, name, PEER, CONF, 1, 1)

    def entry(self, group: int, index: int, payload: bytes = b"", term: int = 1) -> None:
        commit = self.log.groups[group].hard[2]
        self.log.write(Write(group, (term, 0, commit), index, ((term, 1, BODY),)), [payload])

    def entry_in_many_files(self) -> None:
        self.create(9)
        for index in range(2, 60):
            self.entry(9, index, bytes(200))
            synced(self.log)

    def change(self, name: str, at: int) -> None:
        """Change a byte of a file that is not open."""
        data = bytearray(self.disk.read_file(f"{DIRECTORY}/{name}"))
        data[at] ^= 1
        fd = self.disk.open_file(f"{DIRECTORY}/{name}")
        self.disk.write_at(fd, data, 0)
        self.disk.sync_file(fd)
        self.disk.close_file(fd)


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_new_log_is_empty_and_counts_its_starts(node: Node) -> None:
    assert (node.log.groups, node.log.boot, node.lines) == ({}, 1, [])
    assert node.killed().boot == 2
    node.disk.lose_power()
    assert node.open().boot == 3


def test_what_was_written_comes_back(node: Node) -> None:
    node.create(7, "orders")
    node.log.write(Write(7, (2, PEER, 1), 2, ((2, 0, b""), (2, 1, BODY))), [b"", b"payload"])
    synced(node.log)
    before = content(node.log)
    assert before[7].payloads == (b"", b"payload")
    assert before[7].entries == ((2, 0, b""), (2, 1, BODY))

    node.disk.lose_power()
    node.open()
    group = node.log.groups[7]
    assert content(node.log) == before
    assert (group.name, group.peer, group.conf, group.hard) == ("orders", PEER, CONF, (2, PEER, 1))
    assert not group.is_damaged


def test_nothing_is_written_before_a_flush(node: Node) -> None:
    node.create(7)
    synced(node.log)
    node.entry(7, 2, b"x")
    with pytest.raises(NotNow, match="index 2 of group 7 is not written yet"):
        node.log.payload(7, 2)
    assert node.killed().groups[7].last == 1


def test_a_turn_is_one_write_and_one_sync(node: Node) -> None:
    for group in range(1, 6):
        node.create(group)
    synced(node.log)
    kinds: list[str] = []
    call = node.disk._due
    node.disk._due = lambda kind, path, size=0: kinds.append(kind) or call(kind, path, size)  # type: ignore
    for group in range(1, 6):
        node.entry(group, 2, b"x" * 50)
    synced(node.log)
    assert kinds == ["write", "sync"]


def test_without_changes_there_is_nothing_to_write_or_sync(node: Node) -> None:
    node.create(7)
    synced(node.log)
    calls = node.disk.calls
    node.log.flush()
    node.log.write(Write(7))
    node.log.flush()
    assert node.log.begin_sync() is None
    assert node.disk.calls == calls


def test_a_commit_index_alone_is_written_with_the_next_record(node: Node) -> None:
    node.create(7)
    node.entry(7, 2)
    synced(node.log)
    calls = node.disk.calls
    assert not node.log.write(Write(7, (1, 0, 2)))
    node.log.flush()
    assert node.disk.calls == calls

    node.entry(7, 3)
    synced(node.log)
    assert not node.log.stage_commits()
    assert node.killed().groups[7].hard == (1, 0, 2)


def test_a_commit_index_that_no_record_has_is_staged_on_demand(node: Node) -> None:
    node.create(7)
    node.create(8)
    node.entry(7, 2)
    node.log.write(Write(7, (1, 0, 2)))
    node.log.write(Write(8, (1, 0, 1)))
    node.log.remove(8)

    assert node.log.stage_commits()
    assert not node.log.stage_commits()
    synced(node.log)
    assert node.killed().groups[7].hard == (1, 0, 2)


def test_a_closed_log_has_every_commit_index(node: Node) -> None:
    node.create(7)
    node.entry(7, 2)
    node.log.write(Write(7, (1, 0, 2)))
    node.log.close()
    assert node.open().groups[7].hard == (1, 0, 2)


def test_a_sync_covers_what_was_written_when_it_began(node: Node) -> None:
    node.create(7)
    node.log.flush()
    job = node.log.begin_sync()
    assert job is not None
    written = node.log.written
    node.entry(7, 2)
    node.log.flush()
    assert node.log.begin_sync() is None  # a sync is already running
    node.log.finish_sync(job, job())
    assert node.log.synced == written < node.log.written
    synced(node.log)
    assert node.log.synced == node.log.written


def test_entries_of_another_leader_replace_a_suffix(node: Node) -> None:
    node.create(7)
    for index in range(2, 6):
        node.entry(7, index, b"old%d" % index)
    node.entry(7, 3, b"new", term=2)
    synced(node.log)
    node.killed()
    assert content(node.log)[7].payloads == (b"old2", b"new")


def test_a_compaction_keeps_what_follows_and_a_snapshot_replaces_all(node: Node) -> None:
    node.create(7)
    for index in range(2, 6):
        node.entry(7, index, b"%d" % index)
    node.log.point(7, 3, 1, CONF, b"at 3")
    synced(node.log)
    assert content(node.killed())[7].payloads == (b"4", b"5")
    assert node.log.groups[7].state == b"at 3"

    node.log.point(7, 4, 2, CONF, b"other")  # index 4 with another term
    synced(node.log)
    group = node.killed().groups[7]
    assert (group.start, group.start_term, group.last, group.state) == (4, 2, 4, b"other")


def test_a_removed_group_is_gone_and_may_come_back(node: Node) -> None:
    node.create(7, "first")
    node.entry(7, 2)
    synced(node.log)
    node.log.remove(7)
    synced(node.log)
    assert node.killed().groups == {}
    node.create(7, "second")
    synced(node.log)
    assert (node.killed().groups[7].name, node.log.groups[7].last) == ("second", 1)


def test_a_vote_is_never_taken_back(node: Node) -> None:
    node.create(7)
    node.log.write(Write(7, (2, PEER, 0)))
    for hard in ((1, PEER, 0), (2, 0, 0), (2, PEER + 1, 0), (2, PEER, 2)):
        with pytest.raises(AssertionError):
            node.log.write(Write(7, hard))


def test_files_are_used_again_while_groups_at_rest_keep_what_they_have(node: Node) -> None:
    node.create(1, "rest")
    node.entry(1, 2, b"rests")
    node.create(2, "busy")
    for index in range(2, 400):
        node.entry(2, index, b"x" * 100)
        synced(node.log)
        node.log.point(2, index, 1, CONF, b"")
    synced(node.log)

    assert len(node.log.files) <= 4
    assert int(node.log.files[0][:8]) > 10
    assert len(node.disk.list_dir(DIRECTORY)) <= 6
    assert node.log.payload(1, 2) == b"rests"
    before = content(node.log)
    assert content(node.killed()) == before
    assert node.lines == []


def test_a_group_with_much_in_the_oldest_file_is_for_its_owner_to_compact(node: Node) -> None:
    node.create(1, "much")
    node.create(2)
    for index in range(2, 40):
        node.entry(1, index, b"x" * 100)
    for index in range(2, 60):
        node.entry(2, index, b"x" * 100)
        synced(node.log)
        node.log.point(2, index, 1, CONF, b"")
    assert node.log.crowding() == [1]
    oldest = node.log.files[0]

    node.log.point(1, 39, 1, CONF, b"")
    for index in range(60, 90):
        node.entry(2, index, b"x" * 100)
        node.log.point(2, index, 1, CONF, b"")
        synced(node.log)
    assert node.log.crowding() == []
    assert node.log.files[0] > oldest


def test_a_record_larger_than_a_file_gets_a_larger_file(node: Node) -> None:
    node.create(7)
    node.entry(7, 2, bytes(10_000))
    synced(node.log)
    assert node.killed().payload(7, 2) == bytes(10_000)


def test_a_file_made_in_advance_is_the_next_one(node: Node) -> None:
    job = node.log.begin_fresh_file()
    assert job is not None
    assert node.log.begin_fresh_file() is None
    node.log.finish_fresh_file(job, job())
    assert "fresh.spare" in files_of(node.disk)
    assert node.log.begin_fresh_file() is None
    node.killed()
    assert "fresh.spare" not in files_of(node.disk)


def test_a_file_that_cannot_be_made_in_advance_costs_a_line(node: Node) -> None:
    job = node.log.begin_fresh_file()
    assert job is not None
    node.disk.fail_in, node.disk.failure = 1, errno.ENOSPC
    node.log.finish_fresh_file(job, job())
    assert "no file could be made in advance" in node.lines[0][1]
    assert node.log.begin_fresh_file() is None
    node.create(7)
    node.entry(7, 2, bytes(10_000))  # in another file
    assert node.log.begin_fresh_file() is not None
    synced(node.log)
    node.killed()
    assert "fresh.tmp" not in files_of(node.disk)


def test_a_file_made_in_advance_whose_sync_fails_is_the_end_of_the_log(node: Node) -> None:
    job = node.log.begin_fresh_file()
    assert job is not None
    node.disk.fail_in, node.disk.failing = 0, "sync"
    node.log.finish_fresh_file(job, job())

    with pytest.raises(StoreFailed):
        node.create(7)


@pytest.mark.parametrize(
    ("failing", "number"), [("write", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO)]
)
def test_after_an_error_the_log_refuses_everything_and_a_start_finds_what_was_durable(
    node: Node, failing: str, number: int
) -> None:
    node.create(7)
    node.entry(7, 2, b"durable")
    synced(node.log)
    node.disk.fail_in, node.disk.failing, node.disk.failure = 0, failing, number
    node.entry(7, 3, b"not")
    with pytest.raises(StoreFailed) as raised:
        synced(node.log)

    assert raised.value.reason == errno.errorcode[number].lower()
    refused = (
        lambda: node.log.flush(),
        lambda: node.log.begin_sync(),
        lambda: node.log.witness(),
        lambda: node.log.begin_fresh_file(),
        lambda: node.create(8),
        lambda: node.log.remove(7),
        lambda: node.entry(7, 4),
        lambda: node.log.point(7, 2, 1, CONF, b""),
    )
    for call in refused:
        with pytest.raises(StoreFailed):
            call()
    node.log.close()
    node.disk.lose_power()
    assert node.open().payload(7, 2) == b"durable"
    assert node.log.groups[7].last in (2, 3)
    assert node.lines == []


def test_a_full_disk_fails_the_next_file_and_leaves_all_others(node: Node) -> None:
    node.create(7)
    node.disk.fail_in, node.disk.failing, node.disk.failure = 0, "allocate", errno.ENOSPC
    last = 1

    def fill() -> None:
        nonlocal last
        for index in range(2, 100):
            node.entry(7, index, b"x" * 100)
            synced(node.log)
            last = index

    with pytest.raises(StoreFailed):
        fill()
    node.disk.lose_power()
    assert node.open().groups[7].last == last > 10


def test_a_start_that_fails_leaves_everything_as_it_was(node: Node) -> None:
    node.create(7)
    node.entry(7, 2, b"x")
    synced(node.log)
    before = content(node.log)
    for calls in range(12):
        node.disk.end_process()
        node.disk.fail_in, node.disk.failure = calls, errno.EIO
        try:
            node.open()
        except StoreFailed:
            node.disk.lose_power()
    assert content(node.killed()) == before


def test_unsynced_pages_of_a_killed_process_are_written_again(node: Node) -> None:
    node.create(7)
    node.log.flush()
    node.disk.fail_in, node.disk.failing = 0, "sync"
    job = node.log.begin_sync()
    assert job is not None
    node.log.finish_sync(job, job())  # the disk loses these pages, and a later sync succeeds
    assert node.log.error is not None

    node.killed()
    found = content(node.log)
    node.disk.lose_power()
    assert content(node.open()) == found


def test_damage_of_one_group_is_its_own(node: Node) -> None:
    node.create(1, "hurt")
    node.create(2, "whole")
    node.entry(1, 2, b"A" * 20)
    node.entry(2, 2, b"B" * 20)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    name = node.log.files[0]
    at = files_of(node.disk)[name].index(b"A" * 20)
    node.change(name, at)

    node.open()
    assert node.lines == [
        (
            "ERR",
            f"  {DIRECTORY}/{name} at {at - 40 - 112}: the payload of index 2 is damaged; groups that must come back"
            " as new replicas: 1 'hurt'",
        )
    ]
    assert (node.log.damages, node.log.lost_unknown) == (1, False)
    assert node.log.groups[1].is_damaged
    assert node.log.payload(2, 2) == b"B" * 20
    with pytest.raises(CorruptRecord, match="group 1 'hurt' is damaged"):
        node.log.payload(1, 2)
    with pytest.raises(CorruptRecord):
        node.entry(1, 3)

    assert node.killed().groups[1].is_damaged  # until the node returns as another peer
    node.log.create(1, "hurt", PEER + 1, CONF, 0, 0)
    synced(node.log)
    group = node.killed().groups[1]
    assert (group.is_damaged, group.peer, group.last) == (False, PEER + 1, 0)


def test_a_damaged_record_names_its_group_even_without_its_head(node: Node) -> None:
    node.create(1, "hurt")
    node.create(2, "whole")
    node.entry(1, 2, b"A" * 20)
    node.entry(2, 2)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    name = node.log.files[0]
    node.change(name, files_of(node.disk)[name].index(b"A" * 20) - 152 + 40)  # the group in the record

    node.open()
    assert "1 record lost; groups that must come back as new replicas: 1 'hurt'" in node.lines[0][1]
    assert [group.is_damaged for group in node.log.groups.values()] == [True, False]


def test_a_witness_tells_damage_from_the_end_of_a_log_that_was_killed(node: Node) -> None:
    node.create(1)
    node.entry(1, 2, b"A" * 20)
    synced(node.log)
    node.log.witness()
    written = node.log.written
    node.log.witness()
    assert node.log.written == written  # the loss is logged once
    node.disk.end_process()
    name = node.log.files[0]
    node.change(name, files_of(node.disk)[name].index(b"A" * 20))
    assert node.open().groups[1].is_damaged


def test_a_missing_newest_file_is_noticed(node: Node) -> None:
    node.create(1)
    synced(node.log)
    node.killed()
    node.entry(1, 2)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    node.disk.unlink(f"{DIRECTORY}/{node.log.files[-1]}")
    boot = node.log.boot

    node.open()
    assert "00000002.log at 0: the file is missing, or its header is" in node.lines[0][1]
    assert node.log.groups[1].is_damaged
    assert node.log.lost_unknown
    assert node.log.boot > boot + 1000


def test_a_file_without_a_header_is_set_aside(node: Node) -> None:
    node.create(1)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    for at in (0, 4096 - 72):
        node.change(node.log.files[0], at)

    node.open()
    assert "both copies of the header are damaged" in node.lines[0][1]
    assert "is set aside as" in node.lines[1][1]
    assert node.log.lost_unknown
    assert ".damaged-0-00000001.log" in files_of(node.disk)


def test_a_doubt_about_missing_groups_stays_until_its_end_is_told(node: Node) -> None:
    node.create(1)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    for at in (0, 4096 - 72):
        node.change(node.log.files[0], at)
    for calls in range(25):  # a start that ends at any of its calls leaves the log doubtful
        node.disk.end_process()
        node.disk.crash_in = calls
        try:
            node.open()
        except Crash:
            node.disk.end_process()
            node.disk.lose_power()
            node.open()
        assert node.log.lost_unknown

    boot = node.log.boot
    node.log.end_doubt()
    synced(node.log)
    assert node.killed().lost_unknown is False
    assert node.log.boot == boot + 1
    node.entry_in_many_files()
    assert node.killed().lost_unknown is False


def test_an_end_of_doubt_that_does_not_fit_begins_a_file(node: Node) -> None:
    node.create(1)
    room = node.log._shelf.newest.end - node.log._end.at
    node.entry(1, 2, bytes(room - 200))
    files = len(node.log.files)
    node.log.end_doubt()
    synced(node.log)
    assert len(node.log.files) == files + 1


def test_one_damaged_copy_of_a_header_costs_nothing(node: Node) -> None:
    node.create(1)
    synced(node.log)
    node.log.close()
    node.disk.end_process()
    node.change(node.log.files[0], 4096 - 72)
    assert node.open().groups[1].is_damaged is False
    assert node.lines[0] == (
        "WRN",
        f"  {DIRECTORY}/00000001.log at 4024: one of two copies of the header is damaged",
    )


@pytest.mark.parametrize("whole", [True, False])
def test_damage_found_when_an_entry_is_read_back_damages_its_group(node: Node, whole: bool) -> None:
    node.create(1, "hurt")
    node.entry(1, 2, b"A" * 20)
    synced(node.log)
    at = files_of(node.disk)[node.log.files[0]].index(b"A" * 20)
    node.change(node.log.files[0], at if whole else at - 30)
    with pytest.raises(CorruptRecord, match=f"{'payload' if whole else 'record'} of index 2 is damaged"):
        node.log.payload(1, 2) if whole else node.log.entries(1)
    assert node.log.groups[1].is_damaged
    assert node.log.damages == 1


def test_an_unreadable_place_is_damage_and_a_lack_of_memory_is_not(node: Node) -> None:
    node.create(1)
    node.entry(1, 2)
    synced(node.log)
    for number, kind in ((errno.ENOMEM, NotNow), (errno.EIO, CorruptRecord)):
        node.disk.fail_in, node.disk.failing, node.disk.failure = 0, "read", number
        with pytest.raises(kind):
            node.log.payload(1, 2)
    assert node.log.groups[1].is_damaged


def test_large_bodies_come_back(node: Node) -> None:
    node.create(1)
    node.log.write(Write(1, None, 2, ((1, 2, bytes(5000)),)), [b"x" * 9000])
    synced(node.log)
    assert node.log.entries(1) == [(1, 2, bytes(5000))]


def test_a_damaged_group_is_carried_as_damaged(node: Node) -> None:
    node.create(1, "hurt")
    node.entry(1, 2, b"A" * 20)
    node.create(2)
    synced(node.log)
    node.change(node.log.files[0], files_of(node.disk)[node.log.files[0]].index(b"A" * 20))
    for index in range(2, 80):
        node.entry(2, index, b"x" * 100)
        node.log.point(2, index, 1, CONF, b"")
        synced(node.log)
    assert node.log.groups[1].is_damaged  # found when the record was to be rewritten
    assert node.log.files[0] > "00000001.log"
    assert node.killed().groups[1].damage == "it lost a part of its log earlier"


def test_a_group_that_cannot_be_read_for_lack_of_memory_is_carried_later(node: Node) -> None:
    node.create(1, "rest")
    node.entry(1, 2, b"rests")
    node.create(2)
    synced(node.log)
    node.disk.fail_in, node.disk.failing, node.disk.failure = 0, "read", errno.ENOMEM
    for index in range(2, 120):
        node.entry(2, index, b"x" * 100)
        node.log.point(2, index, 1, CONF, b"")
        synced(node.log)
    assert node.disk.failed_calls[0][0] == "read"
    assert node.log.files[0] > "00000001.log"
    assert node.killed().payload(1, 2) == b"rests"


def test_a_sync_that_ends_after_a_failed_write_frees_no_file(node: Node) -> None:
    node.create(1)
    node.log.flush()
    job = node.log.begin_sync()
    assert job is not None
    error = job()
    node.disk.fail_in, node.disk.failing = 0, "write"
    node.entry(1, 2)
    with pytest.raises(StoreFailed):
        node.log.flush()
    node.log.finish_sync(job, error)
    assert node.log.synced == job.mark
    assert node.log.error is not None


def test_a_closed_log_says_so_and_a_close_that_fails_is_logged(node: Node) -> None:
    node.create(1)
    node.log.close()
    assert node.disk.open_files == []
    node.killed()
    node.entry(1, 2)
    node.disk.fail_in, node.disk.failure = 0, errno.EIO
    node.log.close()
    assert "nothing is written to this log until the next start" in node.lines[0][1]
    assert node.disk.open_files == []


def test_a_process_that_ends_in_any_call_leaves_a_log(node: Node) -> None:
    node.create(1)
    synced(node.log)
    for calls in range(30):
        node.disk.crash_in = calls
        try:
            for _ in range(4):
                node.entry(1, node.log.groups[1].last + 1, b"x" * 500)
                synced(node.log)
        except Crash:
            pass
        last = node.killed().groups[1].last
        assert node.lines == []
        assert len(node.log.entries(1)) == last - 1
