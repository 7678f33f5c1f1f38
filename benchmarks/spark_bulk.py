"""Rows per second of processor time when ranges are read, compared with the limits that Spark and the disk set.

python benchmarks/spark_bulk.py [--rows 2000000] [--rounds 5] [--only decode,client,spark] [--json FILE]

Rows like those of spark_client.py (1,000 subjects, every tenth message with headers, and different payloads of 128
B), read in turn:

    decode    records and entries to Arrow batches, from memory; compiled, compiled and checked, and in plain Python
    client    without Spark: by consumer, in bulk of a stream in memory and of one in files, from the store directory
    spark     a sum over every column in local[2], and a copy to Parquet (snappy); processor time of all of Spark's
              processes, the JVM and the Python workers; the server's is measured separately

ipc is a file of Arrow batches that is mapped and passed to Spark by a Python data source of ten lines. Its cost is
that of Spark's interface to Python, which is the least that any mode with a Python data source can cost. parquet is
Spark's own reader, which uses no Python. Each mode is read once as a warm-up; ratios are computed within a round, and
their median is printed.

Records of a stream in memory have no checksums; all modes but `bulk memory` read a stream in files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import spark_client
from plain_client import PlainClient
from servers import RunningServer, our_command

from pyjs_spark.decode import entries
from pyjs_spark.decode.entries import ENTRY_SIZE
from pyjs_spark.decode.schema import DEFAULT_COLUMNS, arrow_schema
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import bulk, pull
from pyjs_spark.read import files as reader
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, ReadRange
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark_fast import entries as _entries

FILES, MEMORY = "ROWS", "MEMORY"
TICKS = os.sysconf("SC_CLK_TCK")
PARTITIONS = 4
Figures = dict[str, float]  # mode -> rows for each second of processor time


def line(number: int, reply: bytes) -> bytes:
    """Return the publication of a message.

    Its payload is different from all others, since Parquet would store equal payloads only once.
    """
    payload = hashlib.blake2b(b"%d" % number).hexdigest().encode()
    return spark_client.publication(number, reply).replace(spark_client.PAYLOAD, payload)


# -- without Spark --------------------------------------------------------------------------------------------------


def decode_modes(port: int) -> dict[str, Callable[[int], int]]:
    """Return functions that decode pieces in memory."""
    client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",)))
    sid = client.subscribe(b"bench.reply")
    body = json.dumps({"seq": 1, "max_bytes": 256 << 10}).encode()
    client.publish(f"$JS.API.PYJS.BULK.READ.{FILES}".encode(), body, b"bench.reply")
    found = client.next_view(sid, time.monotonic() + 5)
    assert found is not None
    payload = bytes(found[1])
    client.close()
    chunk = bulk.parse_chunk(memoryview(payload))

    def decode(rows: int, kind: Any, check: bool) -> int:
        # The first record of a chunk lacks the previous checksum, which a check needs.
        what = ReadRange(FILES, 1, 2**62)
        decoder = kind(decoded_columns(what.columns), "map", 65536, BATCH_SIZE_MAX)
        maker, done = BatchMaker(what), 0
        table, data = chunk.table[ENTRY_SIZE:] if check else chunk.table, chunk.data
        count = len(table) // ENTRY_SIZE
        while done < rows:
            decoder.listen(1, 2**62)
            at = 0
            while at < count:
                at = decoder.add(table, at, data, 0, check)
                done += maker.make(decoder.take()).num_rows if decoder.state == entries.FULL else 0
        return done

    return {
        "decode compiled": lambda rows: decode(rows, _entries.Decoder, False),
        "decode checked": lambda rows: decode(rows, _entries.Decoder, True),
        "decode pure": lambda rows: decode(rows // 8, entries.Decoder, False),
    }


def client_modes(port: int, directory: str) -> dict[str, Callable[[int], int]]:
    """Return functions that read a stream to Arrow batches in this process."""
    settings = ConnectSettings((f"nats://127.0.0.1:{port}",))

    def read(kind: Any, stream: str, rows: int) -> int:
        client = Client(settings)
        done = sum(batch.num_rows for batch in kind(client, ReadRange(stream, 1, rows + 1)))
        client.close()
        return done

    def by_path(rows: int) -> int:
        return sum(
            batch.num_rows
            for batch in reader.read_range(StoreDirectory(directory), ReadRange(FILES, 1, rows + 1))
        )

    return {
        "client consumer": lambda rows: read(pull.read_range, FILES, rows),
        "client bulk memory": lambda rows: read(bulk.read_range, MEMORY, rows),
        "client bulk files": lambda rows: read(bulk.read_range, FILES, rows),
        "client path": by_path,
    }


# -- in Spark -------------------------------------------------------------------------------------------------------


def ipc_source(path: str, rows: int) -> Any:
    """Return a data source that returns the batches of an Arrow file."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from pyjs_spark.decode.schema import spark_ddl

    class Part(InputPartition):
        pass

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [Part(number) for number in range(PARTITIONS)]

        def read(self, partition: Any) -> Iterator[Any]:
            import pyarrow

            with pyarrow.memory_map(path) as source:
                file = pyarrow.ipc.open_file(source)
                for number in range(partition.value, file.num_record_batches, PARTITIONS):
                    yield file.get_batch(number)

    class Ipc(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ipcfile"

        def schema(self) -> str:
            return spark_ddl("map")

        def reader(self, schema: Any) -> Any:
            return Reader()

    return Ipc


def write_ipc(path: str, port: int, rows: int) -> None:
    """Write the stream as an Arrow file, with batches of the same size as in bulk reads."""
    client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",)))
    with pa.OSFile(path, "wb") as out, pa.ipc.new_file(out, arrow_schema(DEFAULT_COLUMNS, "map")) as file:
        for batch in bulk.read_range(client, ReadRange(FILES, 1, rows + 1)):
            file.write_batch(batch)
    client.close()


def cpu_of_children(but: int) -> float:
    """Return the processor seconds of this process and of all processes it started, except one."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
    own, total = os.getpid(), 0
    for pid, used in ticks.items():
        line, at = {pid}, pid
        while at in parents and parents[at] not in line and at != own:
            at = parents[at]
            line.add(at)
        if at == own and but not in line:
            total += used
    return total / TICKS


def spark_modes(
    server: RunningServer, rows: int, scratch: str, wanted: str
) -> tuple[Any, dict[str, Callable[[int], int]]]:
    """Return a session, and functions that process the rows in it."""
    import pyjs_spark

    spark = pyjs_spark.session(
        "bulk", "local[2]", **{"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    ipc, parquet = f"{scratch}/rows.arrow", f"{scratch}/rows.parquet"
    write_ipc(ipc, server.port, rows)
    spark.dataSource.register(ipc_source(ipc, rows))

    def stream(name: str, **options: str) -> Any:
        given = {
            "stream": name,
            "minPartitions": str(PARTITIONS),
            "maxRecordsPerPartition": "10000000",
            **options,
        }
        return spark.read.format("jetstream").options(**given).load()

    at = {"servers": f"nats://127.0.0.1:{server.port}"}
    frames = {
        "ipc": lambda: spark.read.format("ipcfile").load(),
        "bulk memory": lambda: stream(MEMORY, readMode="bulk", **at),
        "bulk files": lambda: stream(FILES, readMode="bulk", **at),
        "path": lambda: stream(FILES, path=str(server.home / "store")),
        "consumer": lambda: stream(FILES, readMode="consumer", **at),
        "parquet": lambda: spark.read.parquet(parquet),
    }
    frames["ipc"]().write.mode("overwrite").parquet(parquet)

    def total(frame: Any) -> int:
        found = frame.selectExpr(
            "count(*)", "sum(seq)", "sum(length(data))", "sum(length(subject))", "sum(size(headers))", "sum(size)",
            "max(ts)", "max(length(stream))",
        ).first()  # fmt: skip
        assert (found[1], found[2]) == (rows * (rows + 1) // 2, rows * 128), found
        return int(found[0])

    def copy(frame: Any) -> int:
        frame.write.mode("overwrite").parquet(f"{scratch}/copy.parquet")
        return rows

    modes: dict[str, Callable[[int], int]] = {
        f"spark {name}": lambda _, make=make: total(make()) for name, make in frames.items()
    }
    for name in ("ipc", "bulk memory", "bulk files", "parquet"):
        modes[f"to parquet {name}"] = lambda _, make=frames[name]: copy(make())
    return spark, {name: mode for name, mode in modes.items() if wanted in name}


# -- measuring ------------------------------------------------------------------------------------------------------


def measured(
    modes: dict[str, Callable[[int], int]], rows: int, rounds: int, server: RunningServer
) -> Iterator[tuple[Figures, Figures]]:
    """Yield rows per processor second of each mode, and processor seconds of the server per million rows."""
    for mode in modes.values():
        mode(rows)
    for number in range(rounds):
        rates: Figures = {}
        served: Figures = {}
        for name, mode in modes.items() if number % 2 == 0 else reversed(modes.items()):
            before, cpu = server.cpu_s(), cpu_of_children(server.pid)
            done = mode(rows)
            cpu = cpu_of_children(server.pid) - cpu
            rates[name] = done / max(cpu, 1 / TICKS)
            print(f"{number + 1}: {name} {cpu:.2f} s", file=sys.stderr, flush=True)
            served[name] = (server.cpu_s() - before) / done * 1e6
        yield rates, served


LIMITS = {
    "spark": "spark ipc",
    "to": "to parquet parquet",
    "client": "client consumer",
    "decode": "decode pure",
}


def report(done: list[tuple[Figures, Figures]]) -> str:
    """Return the table."""
    lines = [f"{'mode':22} {'rows/CPU s':>12} {'ratio':>6} {'[smallest-largest]':>20} {'server s/M':>11}"]
    for name in done[0][0]:
        limit = LIMITS[name.split()[0]]
        ratios = sorted(rates[name] / rates[limit] for rates, _ in done)
        rate = statistics.median(rates[name] for rates, _ in done)
        served = statistics.median(each[name] for _, each in done)
        spread = f"[{ratios[0]:.2f}-{ratios[-1]:.2f}]"
        lines.append(f"{name:22} {rate:12,.0f} {statistics.median(ratios):6.2f} {spread:>20} {served:11.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="decode,client,spark")
    parser.add_argument("--modes", default="", help="a part of the names of the modes in Spark")
    parser.add_argument("--ours", default="", help="command of our server, if this Python cannot run it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scratch", help="folder for the streams and files")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="bulk-", dir=given.scratch))
    kept: dict[str, Any] = {}
    try:
        with RunningServer(our_command(shlex.split(given.ours)), base=scratch) as server:
            spark_client.fill(server.port, given.rows, line, name=FILES, storage="file", allow_direct=True)
            PlainClient(server.port).request(f"$JS.API.STREAM.UPDATE.{FILES}", _quiet(FILES, "file"))
            spark_client.fill(server.port, given.rows, line, name=MEMORY, storage="memory", allow_direct=True)
            for part in given.only.split(","):
                if part == "spark":
                    spark, modes = spark_modes(server, given.rows, str(scratch), given.modes)
                elif part == "client":
                    modes = client_modes(server.port, str(server.home / "store"))
                else:
                    modes = decode_modes(server.port)
                done = list(measured(modes, given.rows, given.rounds, server))
                print(report(done), flush=True)
                kept[part] = done
                if part == "spark":
                    spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1))


def _quiet(name: str, storage: str) -> dict[str, object]:
    """Return a configuration with an unused subject, so that the next stream may have the real subject."""
    return {"name": name, "subjects": ["quiet"], "storage": storage, "allow_direct": True}


if __name__ == "__main__":
    sys.exit(main())
