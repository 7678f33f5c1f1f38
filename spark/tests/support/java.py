"""How the JVMs of these tests are started, and the archive of classes that makes them start quicker.

Half of what a JVM of Spark does in its first minute is to load and verify ten thousand classes. `.ci/spark ready`
makes an archive of them beside the environment (`python -m spark.tests.support.java`), in the form that the JVM keeps
in memory. A JVM of another version, or with other jars, leaves the archive alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark.jsa"
# A JVM that lives for a minute: no time is lost on compiling well, nor on a collector with threads of its own.
# What it has to say of an archive that it cannot use would go to stdout, where scripts of Spark read a command.
PLAIN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
QUICK_JAVA = f"{PLAIN_JAVA} -XX:SharedArchiveFile={CLASSES}" if CLASSES.exists() else PLAIN_JAVA
# Plans of a few rows are not worth compiling, nor looking at again while they run.
QUICK_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}

END_S = 120  # for a JVM to write the archive


def make() -> None:
    """Do in a Spark what the tests do, and keep the classes that its JVM has loaded when it ends."""
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
    java.stdin.close()  # with which it ends, and writes the archive
    if java.wait(END_S) == 0:
        new.replace(CLASSES)


if __name__ == "__main__":
    make()
