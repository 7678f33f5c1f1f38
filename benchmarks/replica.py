"""What replication costs a leader besides consensus: deliver, propose, apply and commit, beside a plain stream.

One node on a virtual clock, memory and file streams, messages of 128 bytes with and without a reply, 1,000 in each
read. Then the same for a pull consumer: batches of 500, each message acknowledged. Consensus is a loop that commits
at once. Prints ns of CPU per message; parsing is in both.

    python -m benchmarks.replica
"""

from __future__ import annotations

import gc
import tempfile
import time
from typing import Any

from pyjs.jetstream.manage.consumers import resources_of
from pyjs.jetstream.manage.replicated_consumers import ConsumerOpener
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.store.file.store import FileStore
from pyjs.testing import VirtualNode

READ, READS, ROUNDS = 1000, 200, 5
BATCH = 500


class AtOnce:
    """Commits and applies each proposal in the turn that proposes it."""

    def __init__(self) -> None:
        self.replica: Replica
        self.index = 0
        self.time_ns = time.time_ns()

    def propose(self, payload: bytes, proposal: Any) -> bool:
        """Apply it."""
        self.index += 1
        self.time_ns += 1_000_000
        self.replica.apply(self.index, 1, self.time_ns, payload, proposal)
        return True


def measured(storage: str, reply: bytes, replicated: bool) -> float:
    """Return the CPU time of one message in ns, of the fastest round."""
    with tempfile.TemporaryDirectory() as directory, VirtualNode(jetstream={"store_dir": directory}) as node:
        client = node.client()
        body = b'{"name":"S","subjects":["s"],"storage":"%b","max_msgs":100000}' % storage.encode()
        client.request(b"$JS.API.STREAM.CREATE.S", body)
        assert node.node.jetstream is not None
        stream = node.node.jetstream.accounts["$G"].streams["S"]
        if replicated:
            if isinstance(stream.store, FileStore):
                stream.store.replicate()
            group = AtOnce()
            group.replica = Replica(stream, group)
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


def measured_acks(storage: str, reply: bytes, retention: str, replicated: bool) -> float:
    """Return the CPU time of one delivered and acknowledged message in ns, of the fastest round."""
    with tempfile.TemporaryDirectory() as directory, VirtualNode(jetstream={"store_dir": directory}) as node:
        client = node.client()
        client.request(
            b"$JS.API.STREAM.CREATE.S",
            b'{"name":"S","subjects":["s"],"storage":"%b","retention":"%b"}'
            % (storage.encode(), retention.encode()),
        )
        assert node.node.jetstream is not None
        engine = node.node.jetstream.accounts["$G"]
        stream = engine.streams["S"]
        if replicated:
            if isinstance(stream.store, FileStore):
                stream.store.replicate()
            group = AtOnce()
            group.replica = Replica(stream, group)
            group.replica.consumers.opener = ConsumerOpener(engine, stream, resources_of(engine, stream))
            group.replica.lead()
            client.send(b"")
        client.request(
            b"$JS.API.CONSUMER.CREATE.S.c",
            b'{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit"}}',
        )
        client.send(b"SUB in 1\r\n")
        best = float("inf")
        for _ in range(ROUNDS):
            for _ in range(20):
                client.send(b"PUB s 128\r\n%b\r\n" % (b"x" * 128) * BATCH)
            gc.collect()
            spent = 0
            for _ in range(20):
                client.take()
                began = time.process_time_ns()
                client.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c in 13\r\n{"batch":500}\r\n')
                spent += time.process_time_ns() - began
                frames = client.frames()
                assert len(frames) == BATCH, len(frames)
                acks = b"".join(b"PUB %b %b0\r\n\r\n" % (frame.reply, reply) for frame in frames)
                began = time.process_time_ns()
                client.send(acks)
                spent += time.process_time_ns() - began
            best = min(best, spent / (20 * BATCH))
        return best


def main() -> None:
    """Print the tables."""
    for storage in ("memory", "file"):
        for reply in (b"", b"_INBOX.a "):
            plain, leads = (measured(storage, reply, replicated) for replicated in (False, True))
            asked = "with reply" if reply else "no reply"
            print(
                f"{storage:7} {asked:10} plain {plain:6.0f} ns  leader {leads:6.0f} ns  +{leads - plain:.0f}"
            )
    for storage, reply, retention in (
        ("memory", b"", "limits"),
        ("file", b"", "limits"),
        ("file", b"in ", "limits"),
        ("file", b"", "workqueue"),
    ):
        plain, leads = (measured_acks(storage, reply, retention, replicated) for replicated in (False, True))
        asked = "double ack" if reply else "ack"
        print(
            f"{storage:7} {retention:9} {asked:10} plain {plain:6.0f} ns  leader {leads:6.0f} ns"
            f"  +{leads - plain:.0f}"
        )


if __name__ == "__main__":
    main()
