"""The cost of replication apart from consensus: the leader, compared with a plain stream, and a follower.

One node runs on a virtual clock. Its streams are in memory or in files; the messages have 128 bytes, with and without
a reply subject, and each read has 1,000 of them. Consensus is a loop that commits at once. The program prints the ns
of CPU per message. For the leader and the plain stream they include parse, deliver, propose, apply and commit; for
the follower, apply and commit of the same entries.

    python -m benchmarks.replica
"""

from __future__ import annotations

import gc
import tempfile
import time
from typing import Any

from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.store import FileStore
from pyjs.testing import VirtualNode

READ, READS, ROUNDS = 1000, 200, 5


class AtOnce:
    """Commits and applies each proposal in the turn that proposes it."""

    def __init__(self) -> None:
        self.replica: Replica
        self.index = 0
        self.time_ns = time.time_ns()
        self.entries: list[tuple[int, int, int, bytes]] = []

    def propose(self, payload: bytes, proposal: Any) -> bool:
        """Apply the proposal."""
        self.index += 1
        self.time_ns += 1_000_000
        self.entries.append((self.index, 1, self.time_ns, payload))
        self.replica.apply(self.index, 1, self.time_ns, payload, proposal)
        return True


def created(node: VirtualNode, storage: str) -> Stream:
    """Return a new stream."""
    body = b'{"name":"S","subjects":["s"],"storage":"%b","max_msgs":100000}' % storage.encode()
    node.client().request(b"$JS.API.STREAM.CREATE.S", body)
    assert node.node.jetstream is not None
    return node.node.jetstream.accounts["$G"].streams["S"]


def replicated(stream: Stream, group: AtOnce) -> Replica:
    """Make the stream a replica in a group."""
    if isinstance(stream.store, FileStore):
        stream.store.replicate(1)
    return Replica(stream, group)


def measured(storage: str, reply: bytes, group: AtOnce | None) -> float:
    """Return the processor time per message in ns, in the fastest round."""
    with tempfile.TemporaryDirectory() as directory, VirtualNode(jetstream={"store_dir": directory}) as node:
        stream = created(node, storage)
        client = node.client()
        if group is not None:
            group.replica = replicated(stream, group)
            group.replica.lead()
        data = b"PUB s %b128\r\n%b\r\n" % (reply, b"x" * 128) * READ
        best = float("inf")
        for _ in range(ROUNDS):
            gc.collect()
            began = time.process_time_ns()
            for _ in range(READS):
                client.send(data)
            best = min(best, (time.process_time_ns() - began) / (READS * READ))
            client.take()
        assert stream.store.last_seq == READ * READS * ROUNDS
        return best


def following(storage: str, group: AtOnce) -> float:
    """Return the CPU time in ns per message on a follower that applies a leader's entries, in the fastest round."""
    with tempfile.TemporaryDirectory() as directory, VirtualNode(jetstream={"store_dir": directory}) as node:
        replica = replicated(created(node, storage), group)
        best = float("inf")
        for first in range(0, len(group.entries), READS):
            gc.collect()
            began = time.process_time_ns()
            for entry in group.entries[first : first + READS]:
                replica.apply(*entry)
                node.turn()
            best = min(best, (time.process_time_ns() - began) / (READS * READ))
        assert replica.stream.store.last_seq == READ * READS * ROUNDS
        return best


def main() -> None:
    """Print the table."""
    for storage in ("memory", "file"):
        for reply in (b"", b"_INBOX.a "):
            group = AtOnce()
            plain, leads = measured(storage, reply, None), measured(storage, reply, group)
            follows = following(storage, group)
            asked = "with reply" if reply else "no reply"
            print(
                f"{storage:7} {asked:10} plain {plain:6.0f} ns  leader {leads:6.0f} ns  +{leads - plain:.0f}"
                f"  follower {follows:6.0f} ns"
            )


if __name__ == "__main__":
    main()
