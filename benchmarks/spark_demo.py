"""A whole pipeline on one machine, whose results are compared with each other: make spark-demo.

python benchmarks/spark_demo.py [--messages 1000000] [--master 'local[*]'] [--server "COMMAND ..."] [--json FILE]

The program starts a server with an empty store and a separate Spark, and does what a user would:

    write      a DataFrame of orders into the stream ORDERS, by the sink, exactly once
    archive    the stream into Parquet files
    windows    counts and revenue by subject and window of ten seconds into the bucket RATES, by a streaming query
    replay     the archive into the stream ORDERS_AGAIN, in order

Then the messages and the revenue are counted again in both streams and in the files, and each window of the bucket is
compared with the same window computed from the files. The exit code is 0 only if there is no difference. No files are
left behind.
The rates come from a single run on this machine, with Spark, server and client; they are not benchmark results.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from servers import ROOT, RunningServer, our_command

from pyjs_spark import session
from pyjs_spark.lake.lakes import Lake, archive
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import Client, connected
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.reading import parse_options

MESSAGES = 1_000_000
SUBJECTS = 100
PARTITIONS = 4  # partitions of the write: each is in order, and continues independently after a crash
WINDOW = "10 seconds"
START = "date_format(window.start, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
ROWS_PER_TRIGGER = "250000"
AMOUNT = "((id * 7919) % 10007) / 100"  # amount of order `id`, in whole cents
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "1g"}


@dataclass
class Story:
    """The results: the seconds of each step, and each number with its expected value."""

    messages: int
    steps: list[tuple[str, int, float]] = field(default_factory=list)  # name, messages, seconds
    checks: list[tuple[str, str, str]] = field(default_factory=list)  # name, found, expected

    @contextmanager
    def step(self, name: str, messages: int) -> Iterator[None]:
        """Measure the time of one step."""
        print(f"{name} ...", file=sys.stderr, flush=True)
        begun = time.perf_counter()
        yield
        self.steps.append((name, messages, time.perf_counter() - begun))

    def check(self, what: str, found: object, expected: object) -> None:
        """Record one number and its expected value."""
        self.checks.append((what, str(found), str(expected)))

    @property
    def is_right(self) -> bool:
        """Return whether every number has its expected value."""
        return all(found == expected for _, found, expected in self.checks)


class Put:
    """Puts the windows of a micro-batch into the bucket; a repeated batch puts the same values. Picklable."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def __call__(self, rows: Any, batch: int) -> None:
        """Write the rows."""
        bucket = rows.write.format("jetstream").option("servers", self._servers).option("stream", "KV_RATES")
        bucket.option("delivery", "atLeastOnce").mode("append").save()


class Demo:
    """The steps of the demo, each in the way a user would write it."""

    def __init__(self, spark: Any, servers: str, folder: Path, messages: int) -> None:
        self.spark = spark
        self.servers = servers
        self.folder = folder
        self.story = Story(messages)

    def run(self) -> Story:
        """Run all steps; return the results."""
        self.make_streams()
        for step in (self.write, self.archive, self.windows, self.replay):
            with self.story.step(step.__name__, self.story.messages):
                step()
        with self.story.step("reconcile", self.story.messages):
            self.reconcile()
        return self.story

    def make_streams(self) -> None:
        """Make the two streams and the bucket."""
        for name, subject in (("ORDERS", "orders.>"), ("ORDERS_AGAIN", "again.>")):
            self.client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
        self.client.api("STREAM.CREATE.KV_RATES", buckets.kv_config("RATES"))

    def write(self) -> None:
        """Write the orders."""
        orders = self.spark.range(0, self.story.messages, 1, PARTITIONS).selectExpr(
            f"concat('orders.', id % {SUBJECTS}) AS subject",
            f"to_json(named_struct('order', id, 'amount', cast({AMOUNT} AS decimal(12,2)))) AS data",
        )
        writer = orders.write.format("jetstream").mode("append").option("servers", self.servers)
        writer.option("stream", "ORDERS").option("sinkId", "demo").save()

    def archive(self) -> None:
        """Write the stream to files."""
        options = parse_options({"servers": self.servers, "stream": "ORDERS"})
        archive(self.spark, Lake(self.lake), options)

    def windows(self) -> None:
        """Aggregate by window and subject."""
        from pyspark.sql import functions as f

        source = self.spark.readStream.format("jetstream").option("servers", self.servers)
        source = source.option("stream", "ORDERS").option("startingOffsets", "earliest")
        orders = source.option("maxRowsPerTrigger", ROWS_PER_TRIGGER).load()
        amounts = orders.selectExpr("ts", "subject", f"{AMOUNT_OF} AS amount").withWatermark(
            "ts", "10 minutes"
        )
        windows = amounts.groupBy(f.window("ts", WINDOW), "subject")
        totals = windows.agg(f.count("*").alias("orders"), f.sum("amount").alias("revenue"))
        result = f"named_struct('start', {START}, 'group', subject, 'orders', orders, 'revenue', revenue)"
        rates = totals.selectExpr(
            f"concat('$KV.RATES.', replace({START}, ':', ''), '.', subject) AS subject",
            f"to_json({result}) AS data",
        )
        query = rates.writeStream.outputMode("update").foreachBatch(Put(self.servers))
        query = query.option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def replay(self) -> None:
        """Write the files into the other stream."""
        head = {"source": self.lake, "stream": "ORDERS", "target": "ORDERS_AGAIN", "id": "demo-again"}
        found = replay.make(head, ["orders.> -> again.>"], {"servers": self.servers})
        replay_run.run(self.spark, found, replay_run.plan(found), lambda each: None)

    # -- counting again -----------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Compare all results."""
        count = self.story.messages
        amounts = self.spark.range(count).selectExpr(f"sum(cast({AMOUNT} AS decimal(12,2)))")
        revenue = amounts.first()[0]
        self.reconcile_archive(count, revenue)
        self.reconcile_windows(count, revenue)
        self.reconcile_replay(count, revenue)

    def reconcile_archive(self, count: int, revenue: object) -> None:
        """Compare the stream with its archive."""
        check, orders = self.story.check, self.orders()
        check("messages in ORDERS", self.stored("ORDERS"), count)
        found = orders.selectExpr(
            "count(*)", "count(DISTINCT seq)", "count(DISTINCT id)", "sum(amount)"
        ).first()
        for what, number in zip(("rows in the archive", "sequences", "orders"), found, strict=False):
            check(what, number, count)
        check("revenue", found[3], revenue)

    def reconcile_windows(self, count: int, revenue: object) -> None:
        """Compare each window in the bucket with the same window of the files."""
        rates = self.read("KV_RATES").selectExpr(f"from_json(CAST(data AS string), '{RESULT}') AS r")
        found = rates.selectExpr("r.start", "r.group AS name", "r.orders", "r.revenue").cache()
        totals = found.selectExpr("sum(orders)", "sum(revenue)").first()
        self.story.check("orders in the bucket", totals[0], count)
        self.story.check("revenue in the bucket", totals[1], revenue)
        again = self.windows_of_files()
        differing = found.exceptAll(again).count() + again.exceptAll(found).count()
        self.story.check("windows that differ", differing, 0)

    def windows_of_files(self) -> Any:
        """Return the windows computed from the files."""
        from pyspark.sql import functions as f

        grouped = self.orders().groupBy(f.window("ts", "10 seconds"), "subject")
        totals = grouped.agg(f.expr("count(1) AS orders"), f.expr("sum(amount) AS revenue"))
        return totals.selectExpr(
            "date_format(window.start, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS start", "subject AS name", "orders",
            "cast(revenue AS decimal(22,2)) AS revenue",
        )  # fmt: skip

    def reconcile_replay(self, count: int, revenue: object) -> None:
        """Check the other stream: it has the same number of rows, in the same order."""
        again = self.read("ORDERS_AGAIN").selectExpr(
            "seq", "CAST(headers['Pyjs-Origin-Seq'][0] AS bigint) AS origin", f"{AMOUNT_OF} AS amount"
        )
        found = again.selectExpr("count(*)", "count_if(seq = origin)", "sum(amount)").first()
        self.story.check("messages in ORDERS_AGAIN", found[0], count)
        self.story.check("at the same place", found[1], count)
        self.story.check("revenue again", found[2], revenue)

    @property
    def client(self) -> Client:
        """Return a working connection. It may be new, since the server closes a connection that answers no pings."""
        return connected(ConnectSettings((self.servers,)))

    @property
    def lake(self) -> str:
        """The location of the archive."""
        return str(self.folder / "lake")

    def orders(self) -> Any:
        """Return the archived orders."""
        rows = self.spark.read.parquet(self.lake)
        return rows.selectExpr("seq", "ts", "subject", f"{ORDER_OF} AS id", f"{AMOUNT_OF} AS amount")

    def read(self, stream: str) -> Any:
        """Return a stream as a DataFrame."""
        return (
            self.spark.read.format("jetstream")
            .option("servers", self.servers)
            .option("stream", stream)
            .load()
        )

    def stored(self, stream: str) -> int:
        """Return the number of messages in a stream."""
        return int(self.client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


RESULT = "start string, `group` string, orders bigint, revenue decimal(22,2)"
ORDER_OF = "CAST(get_json_object(CAST(data AS string), '$.order') AS bigint)"
AMOUNT_OF = "CAST(get_json_object(CAST(data AS string), '$.amount') AS decimal(12,2))"


def show(story: Story) -> None:
    """Print the results."""
    print(f"\n{'step':<12}{'messages':>12}{'seconds':>10}{'messages/s':>13}")
    for name, count, seconds in story.steps:
        print(f"{name:<12}{count:>12,}{seconds:>10.1f}{count / seconds:>13,.0f}")
    print()
    for what, found, expected in story.checks:
        print(f"{'ok' if found == expected else 'WRONG':<6}{what:<28}{found}" + _instead(found, expected))


def _instead(found: str, expected: str) -> str:
    return "" if found == expected else f", not {expected}"


def main() -> int:
    """Run the demo; return its exit code."""
    said = _arguments()
    python = ROOT / ".venv" / "bin" / "python"
    server = our_command(shlex.split(said.server) if said.server else [str(python), "-m", "pyjs"])
    folder = Path(tempfile.mkdtemp(prefix="spark-demo-", dir=said.dir))
    try:
        with RunningServer(server, base=folder) as running:
            spark = session("spark-demo", said.master, **QUIET, **{"spark.local.dir": str(folder / "spark")})
            try:
                story = Demo(spark, f"nats://127.0.0.1:{running.port}", folder, said.messages).run()
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(story)
    if said.json:
        Path(said.json).write_text(json.dumps(asdict(story), indent=1) + "\n")
    return 0 if story.is_right else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The whole pipeline on one machine, reconciled.")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--server", help="the command that starts a server; -c FILE is added")
    parser.add_argument("--dir", help="where the store and the files are meanwhile")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
