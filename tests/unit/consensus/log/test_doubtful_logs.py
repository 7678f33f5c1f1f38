"""Logs that may have lost entries in a power cut that other nodes know: which nodes doubt, and for how long."""

from __future__ import annotations

import pytest
from tests.support.node_logs import Write, synced
from tests.unit.consensus.log.test_node_log import Node

from pyjs.consensus.log.files import BOOT_ID, UNKNOWN_MACHINE
from pyjs.consensus.log.node_log import NodeLog


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
