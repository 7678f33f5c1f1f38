"""The consensus of several nodes with one fault at a time: of machines, logs, peers and the engine."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import xxhash
from tests.sim.consensus.log import Store
from tests.sim.consensus.node import SimMachine, SimNode
from tests.support.consensus import GROUP, Hosts, MemoryNode, payloads

from pyjs.base.errors import CorruptRecord, NotNow
from pyjs.consensus import batch, outbox
from pyjs.consensus.batch import BadBatch
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.engine import Change, Conf, Write, peer_id
from pyjs.consensus.log.durability import Due, Waits
from pyjs.consensus.payloads import Gone, Key, Payloads
from pyjs.consensus.status import Condition


def errors(node: SimNode) -> list[str]:
    return [text for level, text in node.host.log.lines if level == "ERR"]


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def heartbeat(group: int, source: int, target: int, term: int, commit: int) -> bytes:
    """Return the frame of a leader that claims too high a commit index."""
    rest = struct.pack(
        "<4BI11Q", 1, 7, 0, 0, 0, group, peer_id(source), peer_id(target), term, 0, 0, commit, 0, 0, 0, 0
    )
    return struct.pack("<II", len(rest) + 8, xxhash.xxh64_intdigest(rest) & 0xFFFFFFFF) + rest


def test_a_replica_whose_log_lacks_acknowledged_entries_returns_as_a_new_one_and_others_go_on() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad, leader = hosts.followers(5)[0], hosts.leader(5)
    term = leader.consensus.status(5).term
    frames = heartbeat(5, leader.number, bad.number, term, 10_000)

    bad.consensus.receive(leader.number, b"".join(batch.of_frames(frames, ())))
    hosts.until(lambda: bad.peer(5) == peer_id(bad.number, 2))

    closed, dropped = bad.seen
    assert 'group 5 ("g5") is closed on this server' in closed
    assert "returns empty, as replica 2" in dropped
    hosts.publish(3, 6)
    leader.consensus.change(5, [(int(Change.REMOVE), peer_id(bad.number))])
    hosts.step(20)
    leader.consensus.change(5, [(int(Change.ADD_VOTER), peer_id(bad.number, 2))])
    hosts.until(lambda: bad.machines[5].state == leader.machines[5].state)


@pytest.mark.parametrize("leads", [False, True])
def test_a_group_that_panics_is_opened_again_from_its_log_and_others_go_on(leads: bool) -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = next(node for node in hosts.nodes.values() if node.leads(5) == leads)
    for count in (1, 2):
        member = bad.consensus._members[5]
        bad.consensus._panicked(member, f"panic {count}")
        assert not bad.publish(5, b"x")
        hosts.publish(3, 6)
        hosts.until(lambda: bad.consensus._engine.counts()[0] == 2)
        leader = hosts.leader(5)
        assert leader.publish(5, b"%d" % count)
        hosts.until(lambda: all(node.machines[5].state.count == 3 + count for node in hosts.nodes.values()))  # noqa: B023

    assert len(bad.seen) == 2
    assert "is opened again from its log, other groups go on: panic 1" in bad.seen[0]
    assert bad.peer(5) == peer_id(bad.number)


def test_frames_of_another_node_are_refused(hosts: Hosts) -> None:
    hosts.publish(3)
    bad, leader = hosts.followers()[0], hosts.leader()
    frames = heartbeat(GROUP, leader.number, bad.number, leader.consensus.status(GROUP).term + 1, 1)
    other = next(node for node in bad.others if node != leader.number)

    with pytest.raises(BadBatch, match=f"from node {leader.number} in a batch of node {other}"):
        bad.consensus.receive(other, b"".join(batch.of_frames(frames, ())))


class Forgiving(MemoryNode):
    """A node whose errors in the log do not fail the test."""

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        self.seen: list[str] = []
        super().start(now, confs)

    def _expects(self, text: str) -> bool:
        self.seen.append(text)
        return True


def test_a_log_that_fails_ends_the_part_of_the_node_and_acknowledges_nothing() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.leader()
    bad.log.is_broken = True
    bad.publish(GROUP, b"x")

    hosts.step(2)

    assert bad.consensus.condition is Condition.FAILED
    assert bad.stopped == "Replication Failed"
    assert hosts.judge.outcomes[b"x"] == 1  # the outcome is "dropped"
    assert hosts.judge.counts["acked"] == 3
    assert bad.seen == [
        "This server takes no part in replicated groups until a restart, because the log of replicated groups"
        " cannot be written: /consensus: no space left on device"
    ]
    hosts.until(lambda: any(node.leads(GROUP) for node in hosts.nodes.values() if node is not bad))
    assert not bad.publish(GROUP, b"y")


def test_a_sync_of_a_file_made_in_advance_that_fails_is_the_end_too() -> None:
    class Node(Forgiving):
        store_class = Store

    hosts = Hosts(1, node_class=Node)
    node = hosts.leader()
    hosts.step(50)  # nothing more is synced
    node.log._shelf._spares.clear()
    files = node.store._files
    files.failing, files.fail_in = "sync", 0
    hosts.until(lambda: node.consensus.condition is Condition.FAILED, 250)

    assert files.failed_calls == [("sync", "/store/.raft/fresh.tmp")]


def test_a_sync_that_fails_is_as_a_write_that_fails() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.leader()
    bad.consensus._sync_ended(OSError(5, "Input/output error"))

    assert bad.consensus.condition is Condition.FAILED
    assert "cannot be synced: [Errno 5] Input/output error" in errors(bad)[0]


def test_a_replica_that_lost_a_part_of_its_log_begins_again_as_another_one() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    lost = hosts.followers()[0]
    lost.end(power=True)
    object.__setattr__(lost.log.groups[GROUP], "is_damaged", True)
    hosts.start(lost.number)

    hosts.step(20)

    assert lost.log.groups[GROUP].peer == peer_id(lost.number, 2)
    assert "as replica 2 of this server" in lost.seen[0]
    leader = hosts.leader()
    leader.consensus.change(GROUP, [(int(Change.REMOVE), peer_id(lost.number))])
    hosts.step(20)
    leader.consensus.change(GROUP, [(int(Change.ADD_VOTER), peer_id(lost.number, 2))])
    hosts.until(lambda: lost.machines[GROUP].state.count == 3)


def test_a_replica_whose_number_is_lost_with_its_log_takes_one_that_its_owner_does_not_know() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    lost = hosts.followers()[0]
    lost.end(power=True)
    stored = replace(lost.log.groups[GROUP], is_damaged=True, peer=0)
    lost.log.groups[GROUP] = lost.log._written[GROUP] = lost.log._durable[GROUP] = stored
    lost.newest[GROUP] = 7
    hosts.start(lost.number)

    assert lost.log.groups[GROUP].peer == peer_id(lost.number, 8)


def test_a_damaged_log_closes_its_group_and_acknowledges_nothing_of_it() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.leader(5)
    write = bad.log.write

    def refuse(given: Write, payloads: Sequence[bytes]) -> bool:
        if given.group == 5:
            raise CorruptRecord("/consensus/1", 4096, "the record of index 7 is damaged")
        return bool(write(given, payloads))

    bad.log.write = refuse
    bad.publish(5, b"x")
    hosts.step(3)

    assert bad.seen == [  # type: ignore[attr-defined]
        'The replica of group 5 ("g5") is closed on this server, other groups go on: its log is'
        " damaged: /consensus/1 at 4096: the record of index 7 is damaged",
        'The log of group 5 ("g5") is dropped: the replica returns empty, as replica 2 of this server',
    ]
    assert hosts.judge.outcomes[b"x"] == 1
    hosts.publish(3, 6)


def test_an_entry_that_is_damaged_closes_its_group() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.followers()[0]

    def get(key: object) -> bytes:
        raise CorruptRecord("/consensus/1", 4096, "the payload of index 7 is damaged")

    payloads(bad).replaced = get
    hosts.leader().publish(GROUP, b"x")
    hosts.until(lambda: bad.seen)  # type: ignore[attr-defined]

    assert bad.machines[GROUP].state.count == 3
    assert "the payload of index 7 is damaged" in bad.seen[0]  # type: ignore[attr-defined]
    hosts.until(lambda: bad.peer(GROUP) == peer_id(bad.number, 2))


def damaged(*given: object) -> list[tuple[int, int, bytes]]:
    raise CorruptRecord("/consensus/1", 4096, "the record of index 7 is damaged")


def test_a_log_that_cannot_be_cut_closes_its_group_alone() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.leader(5)
    bad.log.point, bad.log.crowding = damaged, lambda: [5]

    hosts.until(lambda: 5 not in bad.consensus._members)

    assert "its log is damaged: /consensus/1 at 4096" in bad.seen[0]  # type: ignore[attr-defined]
    bad.log.crowding = list
    hosts.publish(3, 6)


def test_a_snapshot_that_cannot_be_stored_closes_its_group_alone() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving, tuning=Tuning(log_size_max=2000))
    hosts.publish(5, 5)
    away = hosts.followers(5)[0]
    away.end(power=False)
    hosts.publish(200, 5)
    hosts.step(5)
    hosts.start(away.number)
    away.log.point = damaged

    hosts.until(lambda: 5 not in away.consensus._members)

    assert "its log is damaged: /consensus/1 at 4096" in away.seen[0]  # type: ignore[attr-defined]
    hosts.publish(3, 6)


def open_again(node: SimNode, group: int) -> None:
    """Close a group, and open it again while an operation waits for the log; it then opens a little later."""
    node.consensus.close(group)
    node.consensus.durability.add(Due(Waits.STORED), needs_sync=False)
    node.machines[group] = SimMachine(node, group)
    node.consensus.open(group, f"g{group}", node.machines[group])


def test_a_group_that_cannot_begin_again_is_closed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.followers(5)[0]
    monkeypatch.setattr(bad.log, "entries", damaged)
    open_again(bad, 5)

    hosts.until(lambda: 5 not in bad.consensus._members)
    monkeypatch.undo()

    assert "its log is damaged: /consensus/1 at 4096" in bad.seen[0]  # type: ignore[attr-defined]
    hosts.until(lambda: bad.peer(5) == peer_id(bad.number, 2))
    hosts.publish(3, 6)


def test_a_group_whose_stored_state_is_refused_is_closed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.followers(5)[0]
    without_terms = [(0, *entry[1:]) for entry in bad.log.entries(5)]
    monkeypatch.setattr(bad.log, "entries", lambda group: without_terms)
    bad.consensus._reopen(bad.consensus._members[5])
    monkeypatch.undo()

    hosts.until(lambda: bad.peer(5) == peer_id(bad.number, 2))
    assert "refuses its stored state" in bad.seen[0]  # type: ignore[attr-defined]
    hosts.publish(3, 6)


def test_a_replica_that_begins_again_counts_its_entries_once(hosts: Hosts) -> None:
    hosts.publish(3)
    node = hosts.followers()[0]
    member = node.consensus._members[GROUP]
    before = member.log_size

    node.consensus._reopen(member)

    assert member.log_size == before


def test_a_group_that_cannot_be_read_now_begins_again_later(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.publish(3)
    node = hosts.followers()[0]
    refusals = 3

    def entries(group: int) -> list[tuple[int, int, bytes]]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise NotNow("too many open files")
        return type(node.log).entries(node.log, group)  # type: ignore[no-any-return]

    monkeypatch.setattr(node.log, "entries", entries)
    open_again(node, GROUP)
    hosts.publish(3)

    assert refusals == 0
    assert node.machines[GROUP].state.count == 6


def test_a_damaged_entry_that_another_node_needs_closes_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.leader(5)
    away = hosts.followers(5)[0]
    away.end(power=False)
    bad.publish(5, b"x")
    hosts.until(lambda: bad.machines[5].state.count == 4)
    bad.consensus._payloads.recent.clear()
    monkeypatch.setattr(bad.log, "payload", damaged)
    hosts.start(away.number)

    hosts.until(lambda: 5 not in bad.consensus._members)

    assert "its log is damaged: /consensus/1 at 4096" in bad.seen[0]  # type: ignore[attr-defined]
    hosts.until(lambda: away.machines[5].state.count == 4)


def test_a_log_whose_file_is_needed_again_is_cut(hosts: Hosts) -> None:
    hosts.publish(30)
    leader = hosts.leader()
    leader.log.crowding = lambda: [GROUP]
    leader.deaf = {hosts.followers()[0].number}

    hosts.until(lambda: leader.log.groups[GROUP].start > 30)


def test_a_group_that_is_closed_while_it_waits_to_begin_again_stays_closed(hosts: Hosts) -> None:
    hosts.publish(3)
    node = hosts.followers()[0]
    hosts.leader().publish(GROUP, b"x")
    hosts.step()
    node.consensus.close(GROUP)
    node.consensus.open(GROUP, "g5", node.machines[GROUP])
    node.consensus.close(GROUP)
    hosts.step(5)

    assert node.consensus._engine.counts() == (0, 0)


def test_a_peer_that_does_not_read_gets_its_entries_later(hosts: Hosts) -> None:
    hosts.publish(1)
    leader, deaf = hosts.leader(), hosts.followers()[0]
    leader.deaf = {deaf.number}
    for number in range(20):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.machines[GROUP].state.count == 21)
    assert deaf.machines[GROUP].state.count == 1
    assert leader.consensus._outbox.dropped > 0

    leader.deaf = set()
    hosts.until(lambda: deaf.machines[GROUP].state.count == 21)


def test_an_entry_that_cannot_be_read_now_is_applied_later(hosts: Hosts) -> None:
    hosts.publish(1)
    follower = hosts.followers()[0]
    refusals = 3

    def get(key: Key) -> bytes:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise NotNow("too many open files")
        return Payloads.get(payloads(follower), key)

    payloads(follower).replaced = get
    hosts.publish(5)

    assert refusals == 0
    assert follower.machines[GROUP].state.count == 6


def behind_and_staged(hosts: Hosts) -> SimNode:
    """Return a follower with a staged snapshot, whose sync never ends, and with committed entries from before it."""
    hosts.publish(1)
    leader, follower = hosts.leader(), hosts.followers()[0]

    def get(key: object) -> bytes:
        raise NotNow("too many open files")

    payloads(follower).replaced = get
    leader.publish(GROUP, b"queued")
    hosts.until(lambda: follower.consensus._members[GROUP].queue)
    leader.deaf = {follower.number}
    for number in range(200):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.log.groups[GROUP].start > 50)
    leader.deaf = set()
    follower._finish_jobs = lambda: None  # type: ignore[method-assign]
    hosts.until(lambda: follower.log.groups[GROUP].start > 50)
    payloads(follower).replaced = None
    follower.consensus._payloads.recent.clear()
    return follower


def test_entries_from_before_a_staged_snapshot_are_not_applied() -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    follower = behind_and_staged(hosts)

    hosts.step(5)
    assert not follower.consensus.status(GROUP).is_stopped
    assert follower.machines[GROUP].state.count == 1
    del follower._finish_jobs
    hosts.until(lambda: follower.machines[GROUP].state.count == 202)


def test_a_staged_snapshot_of_a_group_that_was_opened_again_is_not_installed_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    follower = behind_and_staged(hosts)
    consensus, before = follower.consensus, follower.machines[GROUP]
    consensus.close(GROUP)
    follower.machines[GROUP] = after = SimMachine(follower, GROUP)
    consensus.open(GROUP, "g5", after)
    installs: list[int] = []
    install = after.install

    def counted(index: int, data: bytes) -> None:
        installs.append(index)
        install(index, data)

    monkeypatch.setattr(after, "install", counted)

    del follower._finish_jobs
    hosts.until(lambda: after.state.count == 202)

    assert before.state.count == 1
    assert len(installs) == 1


def test_a_newer_snapshot_on_its_way_is_not_taken_for_the_one_that_is_durable() -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    follower = behind_and_staged(hosts)
    snapshots, machine = follower.consensus._snapshots, follower.machines[GROUP]
    index = follower.log.groups[GROUP].start
    point = cast("Any", SimpleNamespace(index=index + 9))
    newer = replace(snapshots._incoming[GROUP], point=point, data=bytearray())
    snapshots._incoming[GROUP] = newer
    del follower._finish_jobs
    hosts.step(3)

    assert snapshots._incoming[GROUP] is newer
    assert machine.state.count == 1


def test_an_entry_that_the_log_has_not_closes_its_group() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(1)
    bad = hosts.followers()[0]

    def get(key: object) -> bytes:
        raise Gone("the log of group 5 has no entry 3 of term 1")

    payloads(bad).replaced = get
    hosts.leader().publish(GROUP, b"x")
    hosts.until(lambda: bad.consensus._members == {})

    assert "has no entry 3 of term 1" in bad.seen[0]  # type: ignore[attr-defined]
    assert bad.host.faults.counts == {}


def test_large_entries_leave_in_several_batches(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH_SIZE", 1000)
    hosts.publish(1)

    hosts.publish(10, size=900)

    assert hosts.judge.counts["acked"] == 11


def test_a_tick_that_raises_an_exception_is_not_the_last(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.publish(1)
    leader = hosts.leader()

    def tick(now_ns: int) -> None:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(leader.consensus._snapshots, "tick", tick)
    with pytest.raises(MemoryError):
        hosts.step(20)
    ticks = leader.consensus._engine.status(GROUP).term
    leader.publish(GROUP, b"x")
    assert leader.consensus._timer is not None
    hosts.until(lambda: all(node.machines[GROUP].state.count == 2 for node in hosts.nodes.values()))
    assert leader.consensus._engine.status(GROUP).term == ticks
