"""The query that kills.py kills, in a process of its own: `python -m tests.spark.kill_driver <what> <JSON>`.

    files     stream to Parquet by Spark's own file sink
    archive   stream to Parquet by the archive, again and again
    stream    stream to stream

With "once" it does what there is and ends; else it goes on until it is killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyjs_spark
from pyjs_spark.options import parse_options
from pyjs_spark.pipelines.archive import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 4000
PARTITION_ROWS = 1500


def main() -> None:
    """Run the query."""
    what, said = sys.argv[1], json.loads(sys.argv[2])
    folder = Path(said["folder"])
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.codegen.wholeStage": "false",  # nothing here runs long enough to be worth compiling
    }
    spark = pyjs_spark.session("kills", "local[2]", **settings)
    if what == "archive":
        archives(spark, said, folder)
        return
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
        writer = rows.select("seq", "data").writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if said["once"]:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    if said["once"] and what == "files":
        found = spark.read.parquet(str(folder / "out")).select("seq").collect()
        (folder / "found.json").write_text(json.dumps(sorted(row.seq for row in found)))


def archives(spark: SparkSession, said: dict[str, Any], folder: Path) -> None:
    """Archive what there is; without "once", again and again."""
    options = parse_options({"servers": said["servers"], "stream": "SOURCE"})
    while True:
        archive(spark, str(folder / "out"), options, rows_per_file=PARTITION_ROWS)
        if said["once"]:
            return


if __name__ == "__main__":
    main()
