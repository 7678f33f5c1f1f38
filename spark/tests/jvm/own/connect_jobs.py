"""Jobs over Spark Connect, in a separate process: `python connect_jobs.py ADDRESS STREAM FOLDER SETTINGS`."""

import json
import os
import sys
from contextlib import nullcontext

import pyjs_spark
from pyjs_spark.cli.config import KINDS
from pyjs_spark.lake import frames, lakes
from pyjs_spark.lake.jobs import Session
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.lake.watch import Watch
from pyjs_spark.options.reading import parse_options

address, stream, folder, settings = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession

server = SparkSession.builder.remote("local[2]").config(map=json.loads(settings)).getOrCreate()
spark = pyjs_spark.session(master=f"sc://{server.client.host}")
assert type(spark).__module__ == "pyspark.sql.connect.session"
options = {"servers": address, "stream": stream}

for kind in ("parquet", "delta", "iceberg"):
    lake = Lake(f"{folder}/{kind}", kind)
    written = lakes.archive(spark, lake, parse_options(options), 5)
    print(kind, sum(file.rows for file in written), lakes.archive(spark, lake, parse_options(options), 5))
head = {"source": f"{folder}/parquet", "stream": stream, "target": f"{stream}AGAIN", "id": f"{stream}AGAIN"}
found = replay.make(head, ["> -> again.>"], {"servers": address})
for _ in range(2):
    plan = replay_run.plan(found)
    print("replay", sum(batch.rows for batch in replay_run.run(spark, found, plan, lambda each: None)))
messages = spark.read.format("jetstream").options(**options).load()
session = Session(lambda: nullcontext(spark), Watch("connect"))


def run(kind: str, servers: str, **said: str) -> str:
    """Run one job of the command; return its last line."""
    job = KINDS[kind].job(said, {"servers": servers} if servers else {})
    outcome = job.kind.run(job, session)
    return f"{kind} {outcome.code} {outcome.lines[-1].removeprefix(stream)}"


lake = f"{folder}/parquet"
print(run("quality", address, stream=stream, target=lake, payload="json"))
print(run("compact", "", stream=stream, target=lake))
print(run("compact", address, stream=stream, target=f"{folder}/latest", latest="true").partition(" in ")[0])
print(run("dlq-report", address, stream=f"{stream}DLQ", target=f"{folder}/dead.parquet").partition(";")[0])
print("latest", frames.latest(messages).count(), "gaps", frames.gaps(messages).count())
spark.stop()
