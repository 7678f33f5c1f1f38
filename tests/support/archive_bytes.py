"""Archives composed by tests, restored on a node with a virtual clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.node import options_with_store

from pyjs.archive.entries import END, MAGIC, encode
from pyjs.archive.frames import FrameWriter
from pyjs.testing import RawClient, VirtualNode

STATE: dict[str, Any] = {"first_seq": 1, "last_seq": 3, "bytes": 100, "consumer_count": 1}
CONSUMER: dict[str, Any] = {
    "config": {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30_000_000_000},
    "state": {
        "delivered": {"consumer_seq": 2, "stream_seq": 2},
        "ack_floor": {"consumer_seq": 1, "stream_seq": 1},
        "pending": {"2": {"Sequence": 2, "Timestamp": 1_700_000_000_000_000_000}},
        "redelivered": {"2": 1},
    },
}


def framed(data: bytes) -> bytes:
    writer = FrameWriter()
    return writer.add(data) + writer.finish()


def entries(state: object = STATE, consumer: object = CONSUMER) -> list[bytes]:
    """Return the entries of an archive of three messages and a consumer."""
    out = [encode(b"state.json", 1, 0, b"", json.dumps(state).encode())]
    out.append(encode(b"consumers/c", 1, 0, b"", json.dumps(consumer).encode()))
    out += [encode(b"s.%d" % seq, 10**18 + seq, seq, b"", b"payload") for seq in (1, 2, 3)]
    return [*out, encode(END.name, END.ts, END.seq, END.headers, END.payload)]


def archive(parts: list[bytes] | None = None) -> bytes:
    return framed(MAGIC + b"".join(entries() if parts is None else parts))


def restore(client: RawClient, data: bytes, chunk_size: int = 1000, **config: object) -> dict[str, Any]:
    """Send an archive of the stream S; return the last response."""
    given = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    answer = json.loads(
        client.request(
            b"$JS.API.STREAM.RESTORE.S", json.dumps({"config": given, "state": {}}).encode()
        ).payload
    )
    if "error" in answer:
        return dict(answer)
    subject = answer["deliver_subject"].encode()
    for at in range(0, len(data), chunk_size):
        reply = client.request(subject, data[at : at + chunk_size])
        if reply.payload:
            return dict(json.loads(reply.payload))
    return dict(json.loads(client.request(subject, b"").payload))


def names(client: RawClient) -> list[str]:
    """Return the names of all streams."""
    return list(json.loads(client.request(b"$JS.API.STREAM.NAMES").payload)["streams"] or [])


class Restores:
    """A node with a store, and one client."""

    def __init__(self, directory: Path) -> None:
        self.options = options_with_store(directory)
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.node = VirtualNode(self.options)
        self.node.node.start_jetstream()
        self.node.turn()
        self.client = self.node.client()
        self.client.send(b"SUB _INBOX.> 1\r\n")
        self.client.take()

    def restore(self, data: bytes, chunk_size: int = 1000, **config: object) -> dict[str, Any]:
        return restore(self.client, data, chunk_size, **config)

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        return dict(json.loads(self.client.request(b"$JS.API." + subject.encode(), data).payload))

    def left(self) -> list[str]:
        """Return the names below the directory of the streams, after all jobs."""
        self.node.turn()
        return [path.name for path in self.directory.rglob("streams/*")]
