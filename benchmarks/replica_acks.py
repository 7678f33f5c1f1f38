"""The cost of replication for the leader per acknowledged message, without consensus, compared with a plain stream.

One node runs on a virtual clock, and its streams are in memory or in files. A pull consumer fetches batches of 500,
and each message is acknowledged. Consensus is a loop that commits at once. The program prints the ns of CPU per
message, including parsing in both cases.

    python -m benchmarks.replica_acks
"""

from __future__ import annotations

import gc
import tempfile
import time

from benchmarks.replica import AtOnce

from pyjs.jetstream.manage.consumers import resources_of
from pyjs.jetstream.manage.replicated_consumers import ConsumerOpener
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.store.file.store import FileStore
from pyjs.testing import RawClient, VirtualNode

BATCH, BATCHES, ROUNDS = 500, 20, 5
CASES = (
    ("memory", b"", "limits"),
    ("file", b"", "limits"),
    ("file", b"in ", "limits"),
    ("file", b"", "workqueue"),
)


def made(node: VirtualNode, storage: str, retention: str, replicated: bool) -> RawClient:
    """Return a client of a stream with a consumer."""
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
            stream.store.replicate(1)
        group = AtOnce()
        group.replica = Replica(stream, group)
        group.replica.consumers.opener = ConsumerOpener(engine, stream, resources_of(engine, stream))
        group.replica.lead()
    client.send(b"SUB in 1\r\n")
    client.request(
        b"$JS.API.CONSUMER.CREATE.S.c",
        b'{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit"}}',
    )
    return client


def measured(storage: str, reply: bytes, retention: str, replicated: bool) -> float:
    """Return the processor time per delivered and acknowledged message in ns, in the fastest round."""
    with tempfile.TemporaryDirectory() as directory, VirtualNode(jetstream={"store_dir": directory}) as node:
        client = made(node, storage, retention, replicated)
        best = float("inf")
        for _ in range(ROUNDS):
            for _ in range(BATCHES):
                client.send(b"PUB s 128\r\n%b\r\n" % (b"x" * 128) * BATCH)
            gc.collect()
            best = min(best, sum(batch_ns(client, reply) for _ in range(BATCHES)) / (BATCHES * BATCH))
        return best


def batch_ns(client: RawClient, reply: bytes) -> int:
    """Pull and acknowledge one batch; return the server's processor time in ns."""
    client.take()
    began = time.process_time_ns()
    client.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c in 13\r\n{"batch":500}\r\n')
    pull_ns = time.process_time_ns() - began
    frames = client.frames()
    assert len(frames) == BATCH
    acks = b"".join(b"PUB %b %b0\r\n\r\n" % (frame.reply, reply) for frame in frames)
    began = time.process_time_ns()
    client.send(acks)
    return pull_ns + time.process_time_ns() - began


def main() -> None:
    """Print the table."""
    for storage, reply, retention in CASES:
        plain, leads = (measured(storage, reply, retention, replicated) for replicated in (False, True))
        asked = "double ack" if reply else "ack"
        print(
            f"{storage:7} {retention:9} {asked:10} plain {plain:6.0f} ns  leader {leads:6.0f} ns"
            f"  +{leads - plain:.0f}"
        )


if __name__ == "__main__":
    main()
