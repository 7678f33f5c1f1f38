"""What replication costs a leader besides consensus: deliver, propose, apply and commit, beside a plain stream.

One node on a virtual clock, memory and file streams, messages of 128 bytes with and without a reply, 1,000 in each
read. Consensus is a loop that commits at once. Prints ns of CPU per message; parsing is in both.

    python -m benchmarks.replica
"""

from __future__ import annotations

import gc
import tempfile
import time
from typing import Any

from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.store.file.store import FileStore
from pyjs.testing import VirtualNode

READ, READS, ROUNDS = 1000, 200, 5


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
                stream.store.replicate(1)
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


def main() -> None:
    """Print the table."""
    for storage in ("memory", "file"):
        for reply in (b"", b"_INBOX.a "):
            plain, leads = (measured(storage, reply, replicated) for replicated in (False, True))
            asked = "with reply" if reply else "no reply"
            print(
                f"{storage:7} {asked:10} plain {plain:6.0f} ns  leader {leads:6.0f} ns  +{leads - plain:.0f}"
            )


if __name__ == "__main__":
    main()
