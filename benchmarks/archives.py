"""Archives of streams: the rate of frames, and backups of one server that the other server restores.

    python -m benchmarks.archives [--messages N] [--peer PATH] [--dir DIR]

The first line of the output has only the rates of frames. Then each server backs up a stream, and the other server
restores the archive; every message is compared (sequence, subject, headers, data, time). The processor time is that
of the server, per MB of the stream.

Source: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pyjs.archive.frames import BLOCK_SIZE, FrameReader, FrameWriter
from pyjs.archive.s2 import masked_crc

sys.path.insert(0, str(Path(__file__).parent))  # as in the other benchmarks
from plain_client import PlainClient
from servers import RunningServer, ServerCommand, find_peer, our_command, peer_command

SIZE = 64 << 20
CHUNK_SIZE = 128 * 1024
BATCH = 2000  # number of messages of one direct get
WINDOW = 4000  # maximum number of unacknowledged publishes


def rate(seconds: float) -> str:
    return f"{SIZE / seconds / 1e6:.0f} MB/s"


def frames() -> None:
    """Measure and print the rates of frames."""
    data = b"".join(b"orders.%d one loaf of bread, " % number for number in range(2000))
    data = (data * (SIZE // len(data) + 1))[:SIZE]
    began = time.perf_counter()
    writer = FrameWriter()
    packed = writer.add(data) + writer.finish()
    written = time.perf_counter()
    assert sum(len(part) for part in FrameReader().add(packed)) == SIZE
    read = time.perf_counter()
    for at in range(0, SIZE, BLOCK_SIZE):
        masked_crc(data[at : at + BLOCK_SIZE])
    summed = time.perf_counter()
    print(
        f"write {rate(written - began)}, read {rate(read - written)}, checksum {rate(summed - read)}",
        flush=True,
    )


# -- a stream from server to server --------------------------------------------------------------------------------


def fill(client: PlainClient, count: int) -> None:
    """Store messages, some of them with headers; delete some messages, and create two consumers."""
    client.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    reply, sent, acked = client.inbox + b".p", 0, 0
    while acked < count:
        upto = min(count, acked + WINDOW)
        client.send(b"".join(publish(number, reply) for number in range(sent, upto)))
        sent = upto
        for _ in client.frames(min(WINDOW // 2, sent - acked)):
            acked += 1
    gone = range(1, count, max(1, count // 100))
    list(client.requests([("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True}) for seq in gone]))
    for name in ("a", "b"):
        config = {"durable_name": name, "ack_policy": "explicit"}
        client.request(f"$JS.API.CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


def publish(number: int, reply: bytes) -> bytes:
    payload = b"%d one loaf of bread " % number * (number % 9 + 1)
    headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
    size = len(headers) + len(payload)
    if not headers:
        return b"PUB s.%d %b %d\r\n%b\r\n" % (number % 997, reply, size, payload)
    return b"HPUB s.%d %b %d %d\r\n%b%b\r\n" % (number % 997, reply, len(headers), size, headers, payload)


def digests(client: PlainClient) -> array[int]:
    """Return a digest of the sequence, subject, headers, data and time of each message."""
    found, seq = array("Q"), 1
    last = client.request("$JS.API.STREAM.INFO.S")["state"]["last_seq"]
    while seq <= last:
        body = b'{"seq":%d,"batch":%d}' % (seq, BATCH)
        client.send(b"PUB $JS.API.DIRECT.GET.S %b.g %d\r\n%b\r\n" % (client.inbox, len(body), body))
        for _, message in client.frames(BATCH + 1):
            if message.startswith(b"NATS/1.0 "):  # a status: the end of the batch, or 404
                break
            head, _, rest = message.partition(b"\r\nNats-Num-Pending: ")
            found.append(
                int.from_bytes(blake2b(head + rest.partition(b"\r\n\r\n")[2], digest_size=8).digest())
            )
            seq = int(head.rpartition(b"Nats-Sequence: ")[2].partition(b"\r\n")[0]) + 1
        else:
            raise SystemExit("archives.py: a batch did not end")
        if message.startswith(b"NATS/1.0 404"):
            break
        if not message.startswith(b"NATS/1.0 204"):
            raise SystemExit(f"archives.py: direct get: {message.decode()}")
    return found


def back_up(client: PlainClient) -> tuple[dict[str, Any], bytes]:
    """Back up the stream; return the server's response and the archive."""
    chunks = client.inbox + b".c"
    asked = {"deliver_subject": chunks.decode(), "chunk_size": CHUNK_SIZE}
    answer, parts = client.request("$JS.API.STREAM.SNAPSHOT.S", asked), []
    for reply, data in client.frames(1 << 40):
        if not data or data.startswith(b"NATS/1.0 "):
            break
        parts.append(data)
        client.send(b"PUB %b 0\r\n\r\n" % reply)
    return answer, b"".join(parts)


def restore(client: PlainClient, answer: dict[str, Any], data: bytes) -> None:
    """Restore an archive; at most sixteen chunks are unacknowledged at a time."""
    body = {"config": answer["config"], "state": answer["state"]}
    subject = client.request("$JS.API.STREAM.RESTORE.S", body)["deliver_subject"].encode()
    pieces = [data[at : at + CHUNK_SIZE] for at in range(0, len(data), CHUNK_SIZE)]
    for at in range(0, len(pieces), 16):
        some = pieces[at : at + 16]
        client.send(
            b"".join(b"PUB %b %b.k %d\r\n%b\r\n" % (subject, client.inbox, len(each), each) for each in some)
        )
        for _, refused in client.frames(len(some)):
            if refused:
                raise SystemExit(f"archives.py: {refused.decode()}")
    client.send(b"PUB %b %b.k 0\r\n\r\n" % (subject, client.inbox))
    (end,) = client.frames(1)
    if b'"error"' in end[1]:
        raise SystemExit(f"archives.py: {end[1].decode()}")


def trip(sides: list[ServerCommand], count: int, directory: Path | None) -> None:
    """Let each server restore the archive that the previous server has made, and compare the messages."""
    answer: dict[str, Any] = {}
    archive, wanted = b"", array("Q")
    for at, side in enumerate(sides):
        with RunningServer(side, base=directory, config="max_pending: 1GB") as server:
            client = PlainClient(server.port)
            told = f"{side.name}:"
            if at == 0:
                fill(client, count)
            else:
                cpu = server.cpu_s()
                restore(client, answer, archive)
                told += f" restored {per_mb(server.cpu_s() - cpu, answer)},"
            found = digests(client)
            wanted = wanted or found
            if found != wanted:
                raise SystemExit(
                    f"archives.py: {side.name} has {len(found)} messages, {len(wanted)} are wanted, or others"
                )
            cpu = server.cpu_s()
            answer, archive = back_up(client)
            told += f" backed up {per_mb(server.cpu_s() - cpu, answer)}, {len(archive) / 1e6:.1f} MB"
            print(f"{told}, {len(found):,} messages equal", flush=True)


def per_mb(cpu_s: float, answer: dict[str, Any]) -> str:
    size = answer["state"]["bytes"] / 1e6
    return f"{size:.0f} MB with {cpu_s / size * 1e3:.2f} ms CPU per MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=0, metavar="N", help="of the stream; 0: frames only")
    parser.add_argument("--peer", metavar="PATH", help="nats-server (default: beside this python, or PATH)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores live during a run")
    given = parser.parse_args()
    frames()
    peer = find_peer(given.peer)
    if given.messages and peer is not None:
        there = peer_command(peer)
        trip([there, our_command(), there, our_command()], given.messages, given.dir)


if __name__ == "__main__":
    main()
