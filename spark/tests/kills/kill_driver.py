"""The queries that kills.py kills, each in a process: `python -m spark.tests.kills.kill_driver <what> <JSON>`.

    files     stream to Parquet by Spark's own file sink
    archive   stream to Parquet by the archive, as a streaming query
    delta     the same to a table of Delta
    stream    stream to stream
    all       these at once

With "once" they do what there is, then their last batch again, and end; else they go on until they are killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyjs_spark
from pyjs_spark.lake import archive_query
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH_ROWS = 4000
PARTITION_ROWS = 2000


def main() -> None:
    """Run the queries."""
    what, said = sys.argv[1], json.loads(sys.argv[2])
    folder = Path(said["folder"])
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "120s",  # of a worker's first connection: machines are busy
        "spark.sql.codegen.wholeStage": "false",  # nothing here runs long enough to be worth compiling
    }
    spark = pyjs_spark.session("kills", "local[2]", **settings)
    run(spark, what, said)
    take_back_last_commit(folder)
    run(spark, what, said)
    if said["once"] and what in ("files", "all"):
        found = spark.read.parquet(str(folder / "files")).select("seq").collect()
        (folder / "found.json").write_text(json.dumps(sorted(row.seq for row in found)))


def run(spark: SparkSession, what: str, said: dict[str, Any]) -> None:
    """Run the queries until they end."""
    started = [query(spark, each, said) for each in ("stream", "files") if what in (each, "all")]
    started += [archives(spark, each, said) for each in ("archive", "delta") if what in (each, "all")]
    for each in started:
        each.awaitTermination()


def take_back_last_commit(folder: Path) -> None:
    """Make Spark run its last batch again."""
    for commits in folder.glob("checkpoint-*/commits"):
        last = max(int(path.name) for path in commits.glob("*") if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)


def query(spark: SparkSession, what: str, said: dict[str, Any]) -> StreamingQuery:
    """Start one query."""
    folder = Path(said["folder"])
    source = spark.readStream.format("jetstream").options(
        servers=said["servers"],
        stream="SOURCE",
        startingOffsets="earliest",
        maxRowsPerTrigger=str(BATCH_ROWS),
        maxRecordsPerPartition=str(PARTITION_ROWS),
    )
    rows = source.load()
    if what == "stream":
        rows = rows.selectExpr("'target.x' AS subject", "headers", "data")
        writer = rows.writeStream.format("jetstream").options(servers=said["servers"], stream="TARGET")
    else:
        writer = (
            rows.select("seq", "data").writeStream.format("parquet").option("path", str(folder / "files"))
        )
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{what}"))
    if said["once"]:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def archives(spark: SparkSession, what: str, said: dict[str, Any]) -> StreamingQuery:
    """Start the archive as a query."""
    folder = Path(said["folder"])
    options = parse_options({"servers": said["servers"], "stream": "SOURCE"})
    lake = Lake(str(folder / what), "parquet" if what == "archive" else what)
    every = "" if said["once"] else "100 milliseconds"
    checkpoint = str(folder / f"checkpoint-{what}")
    return archive_query.start(spark, lake, options, PARTITION_ROWS, every=every, checkpoint=checkpoint)


if __name__ == "__main__":
    main()
