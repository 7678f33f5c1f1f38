"""Logs that may have lost entries in a power cut that other nodes know: which nodes doubt, and for how long."""

from __future__ import annotations

import errno

import pytest
from tests.support.disk import Same
from tests.support.node_logs import DIRECTORY, Write, opened, synced
from tests.unit.consensus.log.test_node_log import Node

from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.consensus.log.files import BOOT_ID, UNKNOWN_MACHINE
from pyjs.consensus.log.node_log import NodeLog
from pyjs.store.format.layout import UNSYNCED


@pytest.fixture
def early() -> Node:
    """A node that sends messages before the data behind them is synced."""
    node = Node()
    node.machine = 6
    node.killed()
    return node


def restarted(node: Node, machine: int | None, *, closed: bool = False) -> NodeLog:
    if closed:
        node.log.close()
    node.disk.end_process()
    node.machine = machine
    return node.open()


def test_a_log_whose_machine_has_started_again_is_doubtful(early: Node) -> None:
    assert not restarted(early, 6).is_doubtful
    assert restarted(early, 10).is_doubtful
    assert restarted(early, 10).is_doubtful  # the log stays doubtful after a kill
    assert restarted(early, 10, closed=True).is_doubtful


def test_a_log_that_was_closed_or_tells_of_durable_records_alone_is_not_doubtful(early: Node) -> None:
    assert not restarted(early, 0, closed=True).is_doubtful
    assert not restarted(early, 10).is_doubtful
    early.log.close()
    assert not restarted(early, 14).is_doubtful


def fail_sync(node: Node, refused: int = 0) -> None:
    """Let a sync fail, and the next `refused` calls of the disk."""
    node.create(7)
    node.log.flush()
    node.disk.failure, node.disk.fail_in, node.disk.fail_more = errno.EIO, 0, refused
    with pytest.raises(StoreFailed):
        synced(node.log)
    node.disk.fail_in = None


def test_a_log_whose_sync_has_failed_is_doubtful_until_it_is_trusted(early: Node) -> None:
    fail_sync(early)
    assert restarted(early, 6).is_doubtful
    assert UNSYNCED not in early.disk.list_dir(DIRECTORY)
    log = restarted(early, 6)  # the log stays doubtful after a kill
    assert log.is_doubtful
    log.trust()
    synced(log)
    assert not restarted(early, 6).is_doubtful


def test_the_mark_of_a_failed_sync_stays_until_the_doubt_is_durable(early: Node) -> None:
    fail_sync(early)
    early.disk.end_process()
    early.disk.failing, early.disk.fail_in = "sync_dir", 0
    with pytest.raises(StoreFailed):
        early.open()
    early.disk.end_process()
    assert UNSYNCED in early.disk.list_dir(DIRECTORY)
    assert restarted(early, 6).is_doubtful


def test_a_failed_sync_makes_no_log_doubtful_whose_node_tells_of_durable_records_alone() -> None:
    node = Node()
    fail_sync(node)
    assert not restarted(node, 6).is_doubtful  # the interval counts from this start
    assert UNSYNCED not in node.disk.list_dir(DIRECTORY)


def test_a_mark_that_the_disk_refuses_is_created_when_the_log_is_closed(early: Node) -> None:
    fail_sync(early, refused=2)
    assert any(f"create the empty file {DIRECTORY}/{UNSYNCED}" in text for _, text in early.lines)
    assert UNSYNCED not in early.disk.list_dir(DIRECTORY)
    assert restarted(early, 6, closed=True).is_doubtful


def test_a_failed_write_alone_makes_no_log_doubtful(early: Node) -> None:
    early.create(7)
    early.disk.failing, early.disk.fail_in = "write", 0
    with pytest.raises(StoreFailed):
        synced(early.log)
    assert not restarted(early, 6, closed=True).is_doubtful


@pytest.mark.parametrize("size", [0, 3000], ids=["a file in use", "a new file"])
def test_records_that_the_kernel_could_not_write_after_a_kill_make_the_second_start_doubtful(
    early: Node, size: int
) -> None:
    early.create(7)
    synced(early.log)
    early.log.witness()
    synced(early.log)
    durable = early.disk.files()
    early.entry(7, 2, bytes(size))
    early.log.flush()
    early.disk.end_process()
    changed = [file for file in early.disk.files() if file.changes]
    assert all(file in durable for file in changed) == (size == 0)
    for file in changed:
        file.lose_sync(Same(0.9), Same(0.0))  # no write reaches the medium
        file.failed = True
        file.evict(Same(0.0))
    with pytest.raises(StoreFailed):
        opened(early.disk, 50, log=ListLog(), machine=6)
    assert restarted(early, 6).groups[7].last == 1
    assert early.log.is_doubtful


def test_a_log_that_is_trusted_says_so_in_its_next_file(early: Node) -> None:
    log = restarted(early, 10)
    newest = log.files[-1]
    log.trust()
    assert not log.is_doubtful
    synced(log)
    assert log.files[-1] > newest

    assert not restarted(early, 10).is_doubtful


def test_a_commit_index_may_go_back_to_the_start_when_others_have_lost_entries(early: Node) -> None:
    early.create(7)
    early.entry(7, 2)
    early.log.write(Write(7, (1, 0, 2)), [])
    synced(early.log)
    early.log.forget_commit(7)
    assert early.log.groups[7].hard == (1, 0, 1)
    early.entry(7, 2, b"another", term=2)
    synced(early.log)

    assert restarted(early, 6).groups[7].hard == (2, 0, 1)
    assert early.log.payload(7, 2) == b"another"


def test_the_number_of_the_machine_is_that_of_the_system(early: Node) -> None:
    early.disk.make_dirs(BOOT_ID.rpartition("/")[0])
    for text in (b"5f1c", b"5f1d"):
        fd = early.disk.open_file(BOOT_ID, create=True)
        early.disk.write_at(fd, text, 0)
        early.disk.close_file(fd)
        assert restarted(early, None).is_doubtful
        early.log.trust()
        synced(early.log)
        assert not restarted(early, None).is_doubtful


def test_a_machine_that_is_not_known_is_never_the_same(early: Node) -> None:
    restarted(early, UNKNOWN_MACHINE)
    assert restarted(early, UNKNOWN_MACHINE).is_doubtful
