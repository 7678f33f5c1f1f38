"""The options of the JVMs in these tests, and an archive of classes that lets them start faster.

A JVM of Spark spends half of the processor time of its start on loading and verifying ten thousand classes.
`.ci/spark ready` creates an archive of them in the folder of the environment (`python -m spark.tests.support.java`),
in the form that the JVM has in memory. A JVM of another version, or with other jars, ignores the archive.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark.jsa"
# For a JVM that runs for a minute: no optimizing compiler, and no garbage collector with its own threads. Warnings
# about an unusable archive would go to stdout, from which scripts of Spark read a command.
PLAIN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
QUICK_JAVA = f"{PLAIN_JAVA} -XX:SharedArchiveFile={CLASSES}" if CLASSES.exists() else PLAIN_JAVA
# For a few rows, it is not worth compiling plans or optimizing them while they run.
QUICK_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}

END_S = 120  # seconds for a JVM to write the archive


def make() -> None:
    """Use Spark as the tests do, and store the classes that its JVM has loaded when it ends."""
    from pyspark.sql import SparkSession

    new = CLASSES.with_name(f"{CLASSES.name}.new")
    dump = f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={new}"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", dump)
    for name, value in {**SETTINGS, **QUICK_PLANS}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.range(100).selectExpr("id % 3 AS kind", "id", "CAST(id AS string) AS name")
    with tempfile.TemporaryDirectory() as folder:
        rows.write.parquet(f"{folder}/rows")
        spark.read.parquet(f"{folder}/rows").where("id > 5").groupBy("kind").count().orderBy("kind").collect()
        counts = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").groupBy("kind").count()
        writer = counts.writeStream.outputMode("complete").option("checkpointLocation", f"{folder}/state")
        writer = writer.foreachBatch(lambda batch, number: batch.collect()).trigger(availableNow=True)
        writer.start().awaitTermination()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()  # the JVM ends then, and writes the archive
    if java.wait(END_S) == 0:
        new.replace(CLASSES)


if __name__ == "__main__":
    make()
