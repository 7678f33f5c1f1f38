"""A new user's first minute, in an environment that contains only the wheel: `python first_use.py '<JSON>'`.

    {"servers": "nats://...", "stream": "ORDERS", "remote": ""}      remote "local": over Spark Connect

The program prints one line of JSON: what a first DataFrame and a streaming query have read, and the seconds until the
first result. test_first_use.py runs the program, which imports nothing of this tree.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time


def main() -> None:
    """Read a stream with a batch and with a streaming query, write a message to it, and print the results."""
    begun = time.monotonic()
    said = json.loads(sys.argv[1])
    import pyjs_spark

    if said["remote"]:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = (
            sys.executable
        )  # for the workers of the Spark Connect server, which otherwise use python3 from PATH
        spark = SparkSession.builder.remote(said["remote"]).getOrCreate()
        pyjs_spark.register(spark)
    else:
        spark = pyjs_spark.session("first", "local[2]", **{"spark.driver.memory": "1g"})
    options = {name: said[name] for name in ("servers", "stream")}
    rows = spark.read.format("jetstream").options(**options).load().selectExpr("count(*)", "max(seq)").first()
    seconds = time.monotonic() - begun
    with tempfile.TemporaryDirectory() as folder:
        source = spark.readStream.format("jetstream").options(**options, startingOffsets="earliest").load()
        writer = (
            source.select("seq")
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
        )
        query = writer.trigger(availableNow=True).start(f"{folder}/out")
        query.awaitTermination()
        copied = spark.read.parquet(f"{folder}/out").count()
    out = spark.createDataFrame([(f"{said['stream'].lower()}.back", b"again")], "subject string, data binary")
    out.write.format("jetstream").mode("append").options(**options).save()
    again = spark.read.format("jetstream").options(**options).load().count()
    kind = type(spark).__module__
    print(
        json.dumps({"rows": list(rows), "copied": copied, "again": again, "kind": kind, "seconds": seconds})
    )
    spark.stop()


if __name__ == "__main__":
    main()
