"""Random histories of three nodes with short logs: crashes, power cuts, partitions, messages and operations.

In some of them, the segments of one node are damaged at each of its crashes. At the end all replicas are equal, and
all acknowledged messages are present unless a request removed them. PYJS_HISTORIES=200 plays more of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest
from tests.support.disk import LossyDisk
from tests.support.replicated import Cluster, ReplicaNode

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.manage import segments
from pyjs.jetstream.replication import copying
from pyjs.jetstream.replication.healing import is_damaged
from pyjs.store.file.store import FileStore
from pyjs.testing.node import RawClient

SEEDS = range(int(os.environ.get("PYJS_HISTORIES", "4")))
ACTIONS = 60
SEGMENT_SIZE = 3000  # bytes


class History:
    """One random history; its seed determines it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = Random(seed)
        tuning = Tuning(log_size_max=self.rng.choice((1500, 4000, 100_000)))
        self.cluster = Cluster(directory, tuning=tuning, max_msgs_per_subject=self.rng.choice((-1, 40)))
        self.has_power_cuts = seed % 2 == 0
        if self.has_power_cuts:
            for number in self.cluster.numbers:
                self.cluster.disks[number] = LossyDisk()
                self.cluster.kill(number)
                self.cluster.start(number)
        self.cluster.create()
        self.damages = Random(seed)
        self.victim = self.damages.choice(self.cluster.numbers) if seed % 3 == 2 else 0
        self.sent = 0
        self.acked: dict[int, bytes] = {}  # by sequence
        self.removed: set[int] = set()  # sequences of messages that may be missing
        self.clients: list[tuple[ReplicaNode, RawClient]] = []

    def act(self) -> None:
        """Do a random operation."""
        chance, rng, cluster = self.rng.random(), self.rng, self.cluster
        if chance < 0.6:
            self.publish(rng.choice((1, 3, 20)))
        elif chance < 0.7:
            self.operate()
        elif chance < 0.82 and len(cluster.up()) > 1:
            self.end(rng.choice(cluster.up()).number)
        elif chance < 0.92:
            self.start_some()
        elif chance < 0.96:
            one, other = rng.sample(cluster.numbers, 2)
            cluster.net.cuts = {(one, other)}
        else:
            cluster.net.cuts = set()
        cluster.step(rng.choice((1, 5, 40)))
        self.hear()

    def leader(self) -> ReplicaNode | None:
        """Return the node that is the leader now, or None if there is none."""
        return next((node for node in self.cluster.up() if node.leads), None)

    def publish(self, count: int) -> None:
        """Publish at the leader; the answers come later, or never."""
        leader = self.leader()
        if leader is None:
            return
        client, inbox = leader.client(), b"_INBOX.%d" % len(self.clients)
        client.send(b"SUB %b.* 1\r\n" % inbox)
        for _ in range(count):
            self.sent += 1
            payload = b"%d" % self.sent
            headers = b""
            if self.rng.random() < 0.3:
                headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % self.rng.randrange(500)
            subject, reply = b"s.%d" % self.rng.randrange(4), b"%b.%d" % (inbox, self.sent)
            size = len(headers) + len(payload)
            head = b"HPUB %b %b %d %d\r\n" % (subject, reply, len(headers), size)
            client.send(
                (head if headers else b"PUB %b %b %d\r\n" % (subject, reply, size))
                + headers
                + payload
                + b"\r\n"
            )
        self.clients.append((leader, client))

    def hear(self) -> None:
        """Process the answers that have arrived."""
        for node, client in self.clients:
            if not node.is_up:
                continue
            for frame in client.frames():
                ack = json.loads(frame.payload)
                if "error" not in ack and not ack.get("duplicate"):
                    assert ack["seq"] not in self.acked, ack
                    self.acked[ack["seq"]] = frame.subject.rpartition(b".")[2]

    def operate(self) -> None:
        """Send a request that removes messages; it may never take effect."""
        leader = self.leader()
        if leader is None:
            return
        last = leader.stream.store.last_seq
        client = leader.client()
        if self.rng.random() < 0.5:
            seq = self.rng.randrange(1, last + 2)
            self.removed.add(seq)
            subject, body = "STREAM.MSG.DELETE.S", {"seq": seq}
        else:
            before = self.rng.randrange(1, last + 2)
            self.removed.update(range(1, before))
            subject, body = "STREAM.PURGE.S", {"seq": before}
        data = json.dumps(body).encode()
        client.send(b"PUB $JS.API.%b _INBOX.x %d\r\n%b\r\n" % (subject.encode(), len(data), data))

    def end(self, number: int) -> None:
        """End the process of a node, by a kill or a power loss."""
        self.cluster.kill(number)
        disk = self.cluster.disks[number]
        if isinstance(disk, LossyDisk):
            disk.lose_power()
        if number == self.victim:
            self.damage(sorted((self.cluster.directory / f"{number}").rglob("*.seg")))

    def damage(self, paths: list[Path]) -> None:
        """Flip a bit of a segment, cut a segment, or remove one that has an index file."""
        rng, chance = self.damages, self.damages.random()
        indexed = [path for path in paths if any(path.parent.glob(f"{path.stem}.idx"))]
        indexed = [path for path in indexed if path.with_suffix(".idx").stat().st_size]
        if chance < 0.2 and indexed:
            rng.choice(indexed).unlink()
        elif paths:
            path = rng.choice(paths)
            data = bytearray(path.read_bytes())
            at = rng.randrange(max(1, len(data.rstrip(b"\0"))))
            data[at : at + 1] = bytes([data[at] ^ 1 << rng.randrange(8)]) if data else b""
            path.write_bytes(data[:at] if chance < 0.3 else data)

    def start_some(self) -> None:
        """Start a node that is down."""
        down = [number for number in self.cluster.numbers if not self.cluster.nodes[number].is_up]
        if down:
            self.cluster.start(self.rng.choice(down))

    def finish(self) -> None:
        """End all faults, and check the final messages."""
        cluster = self.cluster
        cluster.net.cuts = set()
        for number in cluster.numbers:
            if not cluster.nodes[number].is_up:
                cluster.start(number)
        cluster.until(lambda: self.leader() is not None, 2000)
        cluster.step(100)
        cluster.until(self.is_whole, 4000)
        for node in cluster.up():
            store = node.stream.store
            for number in store.sealed_numbers() if isinstance(store, FileStore) and self.victim else ():
                store.examiner.confirm(number)  # as the scrub does
        cluster.until(self.is_whole, 4000)
        found = cluster.same()
        self.hear()
        stored = {seq: payload for seq, _, _, _, payload in found["messages"]}
        first = min(stored, default=0)
        for seq, payload in self.acked.items():
            may_be_gone = seq in self.removed or cluster.config.max_msgs_per_subject > 0
            assert stored.get(seq, b"" if may_be_gone else None) in (payload, b""), (seq, first)

    def is_whole(self) -> bool:
        """Return whether the stream is open on all nodes, without damage."""
        if not all("S" in node.js.streams for node in self.cluster.up()):
            return False
        machines = [each for node in self.cluster.up() for each in node.replicated.machines()]
        return not any(each.is_damaged or is_damaged(each.stream) for each in machines)


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_are_equal_after_any_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 10)
    if seed % 3 == 2:  # then there are several segments
        monkeypatch.setattr(segments, "SEGMENT_SIZE_MIN", SEGMENT_SIZE)
        monkeypatch.setattr(segments, "SEGMENT_SIZE_MAX", SEGMENT_SIZE)
    history = History(tmp_path, seed)
    for _ in range(ACTIONS):
        history.act()
    history.finish()
