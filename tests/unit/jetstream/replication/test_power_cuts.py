"""Power cuts of all nodes with a sync interval: logs and stores lose different ends, and replicas are equal again.

PYJS_HISTORIES=200 plays more random histories.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import orjson
import pytest
from tests.support.disk import LossyDisk
from tests.support.replicated import STEP_MS, Cluster, ReplicaNode

from pyjs.base.clock import NS_PER_MS
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.engine import RaftError
from pyjs.jetstream.replication import copying

NEVER_NS = 10**15  # only votes are synced, unless a test syncs
INTERVAL_STEPS = 30
SEEDS = range(int(os.environ.get("PYJS_HISTORIES", "4")))
ACTIONS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Return three nodes whose machines may lose power, with ten messages that are durable."""
    cluster = Cluster(tmp_path, tuning=Tuning(sync_interval_ns=NEVER_NS))
    for number in cluster.numbers:
        cluster.disks[number] = LossyDisk()
        cluster.kill(number)
        cluster.start(number)
    cluster.create()
    cluster.publish(10)
    cluster.same()
    for node in cluster.up():
        sync_log(node)
        node.stream.store.sync_now()
    return cluster


def sync_log(node: ReplicaNode) -> None:
    job = node.node_log.begin_sync()
    if job is not None:
        node.node_log.finish_sync(job, job())


def cut_power(cluster: Cluster) -> None:
    """End all nodes, and lose unsynced data."""
    for number in cluster.numbers:
        if cluster.nodes[number].is_up:
            cluster.kill(number)
    for number in cluster.numbers:
        lose_power(cluster, number)


def lose_power(cluster: Cluster, number: int) -> None:
    """Lose the unsynced data of a node that was ended."""
    cluster.machines[number] += 1
    disk = cluster.disks[number]
    assert isinstance(disk, LossyDisk)
    disk.lose_power()


def messages(cluster: Cluster) -> list[bytes]:
    """Check that the messages are the same on all nodes; return them."""
    return [payload.rstrip(b".") for *_, payload in cluster.same()["messages"]]


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for each in ranges for number in each]


def copies(node: ReplicaNode) -> list[str]:
    return [text for _, text in node.log.lines if "copies" in text]


def with_lost_messages(cluster: Cluster) -> int:
    """Cut the power, and start all nodes but one; return that one, which alone has the last five messages."""
    odd = cluster.followers()[0].number
    cluster.publish(5, first=100)
    cluster.same()
    sync_log(cluster.nodes[odd])
    cluster.nodes[odd].stream.store.sync_now()
    cut_power(cluster)
    for number in cluster.numbers:
        if number != odd:
            cluster.start(number)
    return odd


def test_a_replica_drops_messages_that_the_majority_has_lost(cluster: Cluster) -> None:
    odd = with_lost_messages(cluster)
    cluster.publish(7, first=200)

    cluster.start(odd)
    cluster.until(lambda: copies(cluster.nodes[odd]))

    assert messages(cluster) == numbers(range(10), range(200, 207))
    cluster.publish(2, first=300)
    assert messages(cluster) == numbers(range(10), range(200, 207), range(300, 302))


def stands(node: ReplicaNode) -> bool:
    """Let a node stand for election; return whether it could."""
    try:
        node.consensus.campaign(1)
    except RaftError:  # its log may have lost entries that it had acknowledged
        return False
    return True


def test_a_leader_whose_store_has_more_than_its_log_keeps_it(cluster: Cluster) -> None:
    odd = cluster.followers()[0].number
    cluster.publish(5, first=100)
    cluster.same()
    cluster.nodes[odd].stream.store.sync_now()
    cut_power(cluster)
    for number in cluster.numbers:
        cluster.start(number)
    cluster.until(lambda: stands(cluster.nodes[odd]))
    cluster.until(lambda: cluster.nodes[odd].leads)

    cluster.publish(3, first=200)

    assert messages(cluster) == numbers(range(10), range(100, 105), range(200, 203))


def test_stores_that_have_more_than_all_logs_are_kept(cluster: Cluster) -> None:
    cluster.publish(5, first=100)
    cluster.same()
    for node in cluster.up():
        node.stream.store.sync_now()
    cut_power(cluster)
    for number in cluster.numbers:
        cluster.start(number)

    cluster.publish(3, first=200)

    assert messages(cluster) == numbers(range(10), range(100, 105), range(200, 203))


def test_a_replica_that_gets_its_entries_again_copies_nothing(cluster: Cluster) -> None:
    away = cluster.followers()[0].number
    cluster.publish(5, first=100)
    cluster.same()
    cluster.nodes[away].stream.store.sync_now()
    cluster.kill(away)
    lose_power(cluster, away)
    again = cluster.start(away)

    cluster.publish(3, first=200)

    assert messages(cluster) == numbers(range(10), range(100, 105), range(200, 203))
    assert copies(again) == []


@pytest.mark.parametrize("steps", [1, 3, 5, 9])
def test_a_copy_in_place_of_lost_messages_survives_a_kill(cluster: Cluster, steps: int) -> None:
    odd = with_lost_messages(cluster)
    cluster.publish(7, first=200)
    again = cluster.start(odd)
    cluster.until(lambda: copies(again))
    cluster.step(steps)
    cluster.kill(odd)

    cluster.start(odd)
    cluster.publish(1, first=300)
    cluster.until(lambda: "S" in cluster.nodes[odd].js.streams)

    assert messages(cluster) == numbers(range(10), range(200, 207), range(300, 301))


def damage(cluster: Cluster, number: int, payload: bytes) -> None:
    """Change a byte of a message in the store of a node that is down."""
    for path in (cluster.directory / f"{number}").rglob("*.seg"):
        data = path.read_bytes()
        at = data.index(payload + b".")
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_replica_drops_lost_messages_although_nobody_publishes(cluster: Cluster) -> None:
    odd = with_lost_messages(cluster)
    cluster.until(lambda: any(node.leads for node in cluster.up()))

    again = cluster.start(odd)

    cluster.until(lambda: copies(again) and "S" in again.js.streams)
    assert messages(cluster) == numbers(range(10))


@pytest.mark.parametrize("damaged", [b"5", b"104"])
@pytest.mark.parametrize("size", [8, 300])
def test_a_damaged_replica_drops_lost_messages_too(cluster: Cluster, size: int, damaged: bytes) -> None:
    odd = with_lost_messages(cluster)
    cluster.publish(7, first=200, size=size)
    damage(cluster, odd, damaged)

    again = cluster.start(odd)

    cluster.until(lambda: copies(again) and "S" in again.js.streams, 1500)
    assert messages(cluster) == numbers(range(10), range(200, 207))


def test_lost_messages_are_not_served(cluster: Cluster) -> None:
    odd = with_lost_messages(cluster)
    cluster.publish(7, first=200)

    again = cluster.start(odd)

    (machine,) = again.replicated.machines()
    limits = set()
    while "S" not in again.js.streams or machine.agreement.is_unsure:
        limits.add(machine.readable_upto())
        cluster.step()
    assert limits <= {0, 10}
    assert machine.readable_upto() > 17


def test_a_replica_finds_lost_messages_after_a_kill_that_hides_them(cluster: Cluster) -> None:
    odd = with_lost_messages(cluster)
    cluster.publish(7, first=200)
    again = cluster.start(odd)
    (machine,) = again.replicated.machines()
    machine.agreement.is_unsure = False  # this log begins after the end of the store

    machine.copy_lost()

    cluster.until(lambda: machine.catch_up is None, 1500)
    assert messages(cluster) == numbers(range(10), range(200, 207))


class History:
    """One random history of publishes, kills and power losses."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = Random(f"{seed} power")
        interval_ns = INTERVAL_STEPS * STEP_MS * NS_PER_MS
        tuning = Tuning(sync_interval_ns=interval_ns, log_size_max=self.rng.choice((1500, 100_000)))
        self.cluster = Cluster(directory, tuning=tuning, max_msgs_per_subject=self.rng.choice((-1, 10)))
        for number in self.cluster.numbers:
            self.cluster.disks[number] = LossyDisk()
            self.cluster.kill(number)
            self.cluster.start(number)
        self.cluster.create()
        self.sent = 0
        self.acked: dict[int, tuple[bytes, int]] = {}  # by sequence: payload, step of the acknowledgement

    def act(self) -> None:
        """Do a random operation."""
        chance, rng, cluster = self.rng.random(), self.rng, self.cluster
        if chance < 0.55:
            self.publish(rng.choice((1, 3, 12)))
        elif chance < 0.65:
            self.sync(rng.choice(cluster.up()))
        elif chance < 0.72 and len(cluster.up()) == 3:
            cluster.kill(rng.choice(cluster.numbers))
        elif chance < 0.9:
            self.start_one()
        elif chance < 0.93 and self.is_sound():
            self.cut_one(rng.choice(cluster.numbers))
        elif chance < 0.98:
            self.cut_all()
        cluster.step(rng.choice((1, 5, 40)))

    def is_sound(self) -> bool:
        return len(self.cluster.up()) == 3 and not any(
            node.node_log.is_doubtful for node in self.cluster.up()
        )

    def publish(self, count: int) -> None:
        """Publish at the leader, and process the answers that arrive at once."""
        cluster = self.cluster
        leader = next((node for node in cluster.up() if node.leads), None)
        if leader is None:
            return
        client = leader.client()
        client.send(b"SUB ack.> 1\r\n")
        for _ in range(count):
            self.sent += 1
            payload = b"%d" % self.sent
            client.send(b"PUB s.%d ack.%b %d\r\n%b\r\n" % (self.sent % 3, payload, len(payload), payload))
        cluster.step(self.rng.choice((0, 3)))
        for frame in client.frames():
            ack = orjson.loads(frame.payload)
            assert "error" not in ack, ack
            self.acked[ack["seq"]] = frame.subject.rpartition(b".")[2], cluster.now

    def sync(self, node: ReplicaNode) -> None:
        """Sync the log or the store, as the kernel may do at any time."""
        if self.rng.random() < 0.3:
            sync_log(node)
        elif "S" in node.js.streams:
            node.stream.store.sync_now()

    def start_one(self) -> None:
        down = [number for number in self.cluster.numbers if not self.cluster.nodes[number].is_up]
        if down:
            self.cluster.start(self.rng.choice(down))

    def cut_one(self, number: int) -> None:
        self.cluster.kill(number)
        lose_power(self.cluster, number)

    def cut_all(self) -> None:
        """Cut the power of all; entries older than an interval and a sync survive if no node was down or damaged."""
        cluster = self.cluster
        safe = cluster.now - 2 * INTERVAL_STEPS if self.is_sound() else -1
        self.acked = {seq: ack for seq, ack in self.acked.items() if ack[1] <= safe}
        cut_power(cluster)
        for number in self.rng.sample(cluster.numbers, self.rng.choice((2, 2, 3))):
            cluster.start(number)
            cluster.step(self.rng.choice((0, 1, 30)))

    def finish(self) -> None:
        """Start all nodes, and check the final messages."""
        cluster = self.cluster
        for number in cluster.numbers:
            if not cluster.nodes[number].is_up:
                cluster.start(number)
        cluster.until(lambda: any(node.leads for node in cluster.up()), 3000)
        cluster.publish(1)
        cluster.until(lambda: all("S" in node.js.streams for node in cluster.up()), 3000)
        stored = {seq: payload for seq, _, _, _, payload in cluster.same()["messages"]}
        may_be_gone = cluster.config.max_msgs_per_subject > 0
        for seq, (payload, _) in self.acked.items():
            assert stored.get(seq, payload if may_be_gone else None) == payload, seq


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_are_equal_after_power_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 10)
    history = History(tmp_path, seed)
    for _ in range(ACTIONS):
        history.act()
    history.finish()
