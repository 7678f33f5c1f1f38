"""A stream of ten million messages, a tenth of them deleted, read through Spark and checked to the last byte.

python benchmarks/spark_size.py [--rows 10000000] [--big 300] [--parts rows,archive] [--store FOLDER] [--json FILE]

    rows     every message that is not deleted, once: count and sum of sequences for each of 100 subjects, each
             payload and each header compared in Spark (payloads and headers with any bytes; every 16th message has
             headers)
    archive  the same messages as Parquet files on an S3 server (moto's, which keeps them in memory), written by two
             workers: each remaining sequence, once, and the peak memory of the workers
    big      payloads of 1,000,000 random bytes and headers of any bytes, read raw: the SHA-256 of each
    memory   the peak of the Python workers (VmHWM, reset before each read) against arrowBatchRows

The exit status is 1 if anything differs from what was published. The server is ours; the rates are for orientation
only, since they depend on other load on the machine. This needs Spark, and PYTHONPATH=src if the package is not
installed; `make spark-size` has both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from plain_client import PlainClient
from servers import RunningServer, our_command
from spark.tests.support.s3 import BUCKET, S3Server

import pyjs_spark
from pyjs_spark.lake import lakes
from pyjs_spark.lake.lakes import Lake
from pyjs_spark.options.reading import parse_options

SUBJECTS = 100
CHUNK = 20_000  # number of messages in one send
ANY = bytes(byte for byte in range(1, 256) if byte not in b"\r\n")
TAIL = b"\x00\r\n\xff'\"\\ MSG 1\r\n"  # the end of each payload
BIG_SIZE = 1_000_000
BATCH_ROWS = (1_000, 10_000, 65_536, 500_000)
Figures = dict[str, Any]


def hashes(count: int) -> np.ndarray:
    """Return a number for each sequence from 1 on.

    The number determines the subject of the message, and whether the message is deleted.
    """
    return (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)


def gone(numbers: np.ndarray) -> np.ndarray:
    """Return for each number whether its message is deleted."""
    return numbers % 10 == 0


def subject_of(numbers: np.ndarray) -> np.ndarray:
    """Return the index of each number's subject."""
    return (numbers >> np.uint64(16)) % SUBJECTS


def line(seq: int, subject: str) -> bytes:
    """Return the publish of one message that asks for no acknowledgement."""
    payload = b"%016x" % seq + TAIL
    if seq % 16:
        return b"PUB size.%b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
    headers = b"NATS/1.0\r\nSeq: %d\r\nAny: %b\r\n\r\n" % (seq, ANY)
    sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
    return b"HPUB size.%b %b\r\n%b%b\r\n" % (subject.encode(), sizes, headers, payload)


def fill(port: int, count: int) -> None:
    """Make the stream SIZE; one purge of a subject deletes messages between the other messages."""
    client = PlainClient(port)
    client.request("$JS.API.STREAM.CREATE.SIZE", {"name": "SIZE", "subjects": ["size.>"]})
    numbers = hashes(count)
    names = np.where(gone(numbers), "gone", subject_of(numbers).astype(str)).tolist()
    for low in range(0, count, CHUNK):
        client.send(b"".join(line(seq + 1, names[seq]) for seq in range(low, min(count, low + CHUNK))))
    client.fence()
    state = client.request("$JS.API.STREAM.INFO.SIZE")["state"]
    assert state["last_seq"] == count, f"{count} published, the stream ends at {state['last_seq']}"
    purged = client.request("$JS.API.STREAM.PURGE.SIZE", {"filter": "size.gone"})["purged"]
    assert purged == int(gone(numbers).sum()), f"purged {purged}"
    client.close()


def big(seq: int) -> tuple[bytes, bytes]:
    """Return headers and payload of a large message."""
    chance = random.Random(seq)
    value = bytes(byte for byte in chance.randbytes(200) if byte not in b"\r\n")
    return b"NATS/1.0\r\nAny: x%bx\r\n\r\n" % value, chance.randbytes(BIG_SIZE)


def fill_big(port: int, count: int) -> dict[int, tuple[str, str]]:
    """Create the stream BIG; return the SHA-256 of the headers and of the payload of each message."""
    client = PlainClient(port)
    client.request("$JS.API.STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["big"]})
    wanted = {}
    for seq in range(1, count + 1):
        headers, payload = big(seq)
        sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
        client.send(b"HPUB big %b.p %b\r\n%b%b\r\n" % (client.inbox, sizes, headers, payload))
        (ack,) = client.frames(1)
        assert json.loads(ack[1])["seq"] == seq, ack
        wanted[seq] = hashlib.sha256(headers).hexdigest(), hashlib.sha256(payload).hexdigest()
    client.close()
    return wanted


# -- memory of the workers ------------------------------------------------------------------------------------------


def workers() -> list[int]:
    """Return the ids of the Python processes that Spark has started below this one."""
    parents: dict[int, int] = {}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid() and _is_below(pid, parents)]


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def reset_peaks() -> None:
    """Reset the peaks to the workers' present memory."""
    for pid in workers():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib() -> int:
    """Return the largest peak memory of a worker, in MiB."""
    peaks = [0]
    for pid in workers():
        with suppress(OSError):
            text = Path(f"/proc/{pid}/status").read_text()
            peaks.append(int(text.partition("VmHWM:")[2].split()[0]))
    return max(peaks) // 1024


# -- reading --------------------------------------------------------------------------------------------------------


def read(spark: Any, port: int, stream: str, **options: object) -> Any:
    """Return the messages of a stream as a DataFrame."""
    given = {"servers": f"nats://127.0.0.1:{port}", "stream": stream, **options}
    return (
        spark.read.format("jetstream").options(**{name: str(value) for name, value in given.items()}).load()
    )


def check_rows(spark: Any, port: int, count: int) -> Figures:
    """Compare every existing message with the published one."""
    from pyspark.sql import functions as of  # only some environments have it

    any_digest = hashlib.sha256(ANY.decode("utf-8", "replace").encode()).hexdigest()
    began = time.monotonic()
    found = read(spark, port, "SIZE").selectExpr(
        "subject",
        "seq",
        f"data <> concat(CAST(lpad(lower(hex(seq)), 16, '0') AS BINARY), X'{TAIL.hex()}') AS is_payload_wrong",
        f"CASE WHEN seq % 16 <> 0 THEN headers IS NOT NULL ELSE coalesce(size(headers) <> 2 "
        f"OR headers['Seq'][0] <> CAST(seq AS STRING) OR sha2(headers['Any'][0], 256) <> '{any_digest}', true) END "
        "AS is_header_wrong",
    )
    lines = (
        found.groupBy("subject")
        .agg(
            of.count("*").alias("count"),
            of.sum("seq").alias("seqs"),
            of.sum(of.col("is_payload_wrong").cast("long")).alias("payloads"),
            of.sum(of.col("is_header_wrong").cast("long")).alias("headers"),
        )
        .collect()
    )
    seconds = time.monotonic() - began
    numbers, seqs = hashes(count), np.arange(1, count + 1)
    left = ~gone(numbers)
    places = subject_of(numbers)[left].astype(np.int64)
    counts = np.bincount(places, minlength=SUBJECTS)
    sums = np.bincount(places, weights=seqs[left].astype(np.float64), minlength=SUBJECTS)
    wanted = {f"size.{n}": (int(counts[n]), int(sums[n]), 0, 0) for n in range(SUBJECTS) if counts[n]}
    got = {row["subject"]: (row["count"], row["seqs"], row["payloads"], row["headers"]) for row in lines}
    wrong = {
        name: (got.get(name), wanted.get(name))
        for name in {*got, *wanted}
        if got.get(name) != wanted.get(name)
    }
    assert not wrong, f"found and published, of {len(wrong)} subjects: {dict(list(wrong.items())[:5])}"
    return {
        "rows": int(left.sum()),
        "seconds": round(seconds, 1),
        "rows_per_s": round(int(left.sum()) / seconds),
    }


def check_archive(spark: Any, port: int, count: int, s3: S3Server) -> Figures:
    """Archive the stream to S3, and compare the sequences in the files with those that are not deleted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reset_peaks()
    began = time.monotonic()
    options = parse_options({"servers": f"nats://127.0.0.1:{port}", "stream": "SIZE"})
    written = lakes.archive(spark, Lake(f"s3://{BUCKET}/size", "parquet"), options)
    seconds, peak = time.monotonic() - began, peak_mib()
    found, stored = [], 0
    for name in (each for each in s3.names("size/") if each.endswith(".parquet")):
        body = s3.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        found.append(pq.read_table(pa.BufferReader(body), columns=["seq"])["seq"].to_numpy())
        stored += len(body)
    wanted = np.arange(1, count + 1)[~gone(hashes(count))]
    seqs = np.sort(np.concatenate(found))
    assert np.array_equal(seqs, wanted), f"{len(seqs)} rows in the archive, {len(wanted)} messages are left"
    return {
        "rows": sum(each.rows for each in written),
        "files": len(written),
        "stored_mb": round(stored / 1e6),
        "seconds": round(seconds, 1),
        "rows_per_s": round(len(wanted) / seconds),
        "peak_mib": peak,
    }


def check_big(spark: Any, port: int, wanted: dict[int, tuple[str, str]]) -> Figures:
    """Compare the large messages with the published ones."""
    reset_peaks()
    began = time.monotonic()
    rows = read(spark, port, "BIG", includeHeaders="raw", minPartitions=2)
    found = rows.selectExpr("seq", "sha2(headers, 256) AS h", "sha2(data, 256) AS d", "size").collect()
    seconds = time.monotonic() - began
    got = {row["seq"]: (row["h"], row["d"]) for row in found}
    assert got == wanted, (
        f"{sum(got.get(seq) != digest for seq, digest in wanted.items())} of {len(wanted)} differ"
    )
    assert {row["size"] for row in found} == {BIG_SIZE}
    return {"messages": len(wanted), "seconds": round(seconds, 1), "peak_mib": peak_mib()}


def memory(spark: Any, port: int, count: int) -> list[Figures]:
    """Read the first `count` sequences with batches of several sizes."""
    found = []
    for batch_rows in BATCH_ROWS:
        reset_peaks()
        before = peak_mib()
        ends = json.dumps({"SIZE": count + 1})
        rows = read(spark, port, "SIZE", arrowBatchRows=batch_rows, endingOffsets=ends, minPartitions=2)
        rows.selectExpr("sum(length(data))", "count(headers)").collect()
        found.append({"arrow_batch_rows": batch_rows, "before_mib": before, "peak_mib": peak_mib()})
        print(found[-1], flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--big", type=int, default=300)
    parser.add_argument("--parts", default="rows,archive,big,memory")
    parser.add_argument("--ours", default="", help="command of our server, if this Python cannot run it")
    parser.add_argument("--store", type=Path, help="folder for the store; needs 150 bytes for each row")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with RunningServer(our_command(shlex.split(given.ours)), base=given.store) as server:
        began = time.monotonic()
        fill(server.port, given.rows)
        done: Figures = {"fill_s": round(time.monotonic() - began, 1), "load": os.getloadavg()[0]}
        digests = fill_big(server.port, given.big) if "big" in given.parts.split(",") else {}
        print(done, flush=True)
        settings = {
            "spark.driver.memory": "2g",
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": False,
        }
        s3 = S3Server()
        os.environ |= s3.environment  # for the workers, too
        spark = pyjs_spark.session("size", "local[2]", **settings)
        try:
            # this starts the workers
            read(spark, server.port, "SIZE", endingOffsets='{"SIZE": 1000}').count()
            for name, figures in (
                ("rows", lambda: check_rows(spark, server.port, given.rows)),
                ("archive", lambda: check_archive(spark, server.port, given.rows, s3)),
                ("big", lambda: check_big(spark, server.port, digests)),
                ("memory", lambda: memory(spark, server.port, min(given.rows, 2_000_000))),
            ):
                if name not in given.parts.split(","):
                    continue
                done[name] = figures()
                print(name, done[name], flush=True)
        except AssertionError as wrong:
            print(f"wrong: {wrong}", file=sys.stderr)
            return 1
        finally:
            spark.stop()
            s3.stop()
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
