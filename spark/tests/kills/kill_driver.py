"""The queries whose processes kills.py kills, in one Spark session: `python -m spark.tests.kills.kill_driver <JSON>`.

    stream            stream to stream
    files             stream to Parquet by Spark's own file sink
    parquet           stream to Parquet by the archive, as a streaming query
    delta, iceberg    the same to a table
    replay            the table of Delta to another stream

All targets of the JSON run at once. If a query ends because its server was unreachable for too long, it is restarted
from its checkpoint, as a service would do, and the reason is written to restarts.log; another error ends the process.
With "once" the queries process all existing messages, then their last batch again, and end; otherwise they run until
they are killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.tests.support.java import QUICK_PLANS

import pyjs_spark
from pyjs_spark.datasource.sessions import activate
from pyjs_spark.lake import archive_query
from pyjs_spark.lake.replay import pipeline, run
from pyjs_spark.lake.tables.table import FORMATS, Lake
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PARTITION_ROWS = 250
BATCH_ROWS = 500
EVERY = "1 second"  # interval of batches: tables stay small, and no query sends a hundred requests per second
REST_ROWS = 20_000  # rows per batch when only the remaining messages are processed
PAUSE_S = 1.0  # pause between two runs of a replay, which ends when it has processed everything
LOOK_S = 0.2  # pause between two looks at a query that is starting
SLOW_START = "Python worker failed to connect back"  # not started within ten seconds: machines may be busy
PASSES = (
    SLOW_START,
    "ConnectionLost",
    "NotAcknowledged",
    "NoResponders",
    "ReadStalled",
    "RequestTimeout",
    "ServerUnreachable",
)
BEGINS = threading.Lock()
NOT_YET = "no archive of stream"  # the query that writes the table has not created it yet


def main() -> None:
    """Run all queries."""
    said = json.loads(sys.argv[1])
    folder = Path(said["folder"])
    settings = {
        "spark.deploy.maxExecutorRetries": "-1",  # executors are killed more often than the default allows
        "spark.driver.memory": "1g",
        "spark.executor.memory": "640m",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        # for a worker's first connection: machines are busy
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.shuffle.partitions": "2",
        **QUICK_PLANS,
    }
    spark = pyjs_spark.session("kills", said["master"], **settings)
    run_all(spark, said)
    take_back_last_commit(folder)
    run_all(spark, said)
    if "files" in said["targets"]:
        found = spark.read.parquet(str(folder / "files")).select("seq").collect()
        (folder / "found.json").write_text(json.dumps(sorted(row.seq for row in found)))


def run_all(spark: SparkSession, said: dict[str, Any]) -> None:
    """Run the targets to their end, each in a separate thread."""
    jobs = [partial(keep, target, job_of(spark, target, said), said) for target in said["targets"]]
    with ThreadPoolExecutor(len(jobs), initializer=activate, initargs=(spark,)) as pool:
        for each in [pool.submit(job) for job in jobs]:
            each.result()


def keep(target: str, job: Callable[[], object], said: dict[str, Any]) -> None:
    """Run one target, and repeat it if its server was down; end the process after any other error."""
    while True:
        try:
            job()
        except Exception as error:
            text = " ".join(str(error).split())
            passes = [name for name in PASSES if name in f"{type(error).__name__} {text}"]
            if passes:
                with Path(said["folder"], "restarts.log").open("a") as log:
                    log.write(f"{target}: {passes[0]}\n")
            elif NOT_YET not in text:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(3)
        else:
            if said["once"]:
                return
        threading.Event().wait(PAUSE_S)


def take_back_last_commit(folder: Path) -> None:
    """Remove the last commit, so that Spark repeats its last batch."""
    for commits in folder.glob("checkpoint-*/commits"):
        last = max(int(path.name) for path in commits.glob("*") if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)


def job_of(spark: SparkSession, target: str, said: dict[str, Any]) -> Callable[[], object]:
    """Return a function that runs one target: it returns when everything is copied, or raises an error."""
    if target == "replay":
        return partial(replayed, spark, said)
    return partial(run_query, archive if target in FORMATS else query, spark, target, said)


def run_query(start: Callable[..., StreamingQuery], *words: Any) -> None:
    """Run a query; only one starts at a time, because its Python must start within ten seconds."""
    with BEGINS:
        found = start(*words)
        while found.isActive and found.status["message"].startswith("Initializing"):
            threading.Event().wait(LOOK_S)
    found.awaitTermination()


def query(spark: SparkSession, target: str, said: dict[str, Any]) -> StreamingQuery:
    """Start a query of the format `jetstream`."""
    folder = Path(said["folder"])
    source = spark.readStream.format("jetstream").options(
        servers=said["servers"],
        stream="SOURCE",
        startingOffsets="earliest",
        maxRowsPerTrigger=str(REST_ROWS if said["once"] else BATCH_ROWS),
        maxRecordsPerPartition=str(PARTITION_ROWS),
    )
    rows = source.load()
    if target == "stream":
        rows = rows.selectExpr("'target.x' AS subject", "headers", "data")
        writer = rows.writeStream.format("jetstream").options(servers=said["servers"], stream="TARGET")
    else:
        writer = (
            rows.select("seq", "data").writeStream.format("parquet").option("path", str(folder / "files"))
        )
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{target}"))
    return writer.trigger(**({"availableNow": True} if said["once"] else {"processingTime": EVERY})).start()


def archive(spark: SparkSession, target: str, said: dict[str, Any]) -> StreamingQuery:
    """Start the archive as a streaming query."""
    folder = Path(said["folder"])
    options = parse_options({"servers": said["servers"], "stream": "SOURCE"})
    every = "" if said["once"] else EVERY
    checkpoint = str(folder / f"checkpoint-{target}")
    lake = Lake(str(folder / target), target)
    return archive_query.start(spark, lake, options, PARTITION_ROWS, every=every, checkpoint=checkpoint)


def replayed(spark: SparkSession, said: dict[str, Any]) -> None:
    """Replay the contents of the table of Delta."""
    head = {
        "source": str(Path(said["folder"], "delta")),
        "format": "delta",
        "stream": "SOURCE",
        "target": "REPLAYED",
        "id": "kills",
        "rows_per_batch": str(REST_ROWS if said["once"] else BATCH_ROWS),
    }
    found = pipeline.make(head, ["source.> -> again.>"], {"servers": said["servers"]})
    planned = run.plan(found)
    if planned.batches:
        run.run(spark, found, planned, lambda each: None)


if __name__ == "__main__":
    main()
