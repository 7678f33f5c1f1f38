"""A streaming query is observed in a real Spark: metrics over HTTP, log lines, a progress bar, and a loss."""

from __future__ import annotations

import io
import logging
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyjs_spark.observe.progress import BatchDone, QueryKey

WAIT_S = 60.0


class Ends:
    """A reporter that lets the test wait for the ends of queries, which Spark reports asynchronously."""

    def __init__(self) -> None:
        self._ended = threading.Semaphore(0)

    def started(self, query: QueryKey) -> None: ...

    def batch(self, done: BatchDone) -> None: ...

    def ended(self, query: QueryKey, error: str) -> None:
        self._ended.release()

    def wait(self) -> None:
        assert self._ended.acquire(timeout=WAIT_S)


def test_a_query_is_seen_in_metrics_log_and_bar(
    spark: SparkSession,
    server: ServerProcess,
    filler: Filler,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    library = pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    from pyjs_spark.observe.bar import ProgressBar
    from pyjs_spark.observe.lines import LogLines
    from pyjs_spark.observe.listener import attach, measured
    from pyjs_spark.observe.prometheus import QueryMetrics

    caplog.set_level(logging.INFO, "pyjs_spark.query")
    filler.create()
    filler.fill(100, size=10)
    metrics, shown, ends = QueryMetrics(library.CollectorRegistry()), io.StringIO(), Ends()
    port = metrics.serve(0)
    listener = attach(spark, metrics, LogLines(), ProgressBar(shown), ends)

    def run() -> None:
        source = spark.readStream.format("jetstream").options(
            servers=f"nats://127.0.0.1:{server.port}", stream=filler.name, startingOffsets="earliest",
            maxRowsPerTrigger="60", failOnDataLoss="false",
        )  # fmt: skip
        writer = measured(source.load()).writeStream.format("noop").queryName("seen")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        ends.wait()

    try:
        run()
        filler.fill(50, size=10)
        filler.api(f"STREAM.PURGE.{filler.name}", seq=121)
        run()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
    finally:
        spark.streams.removeListener(listener)
        metrics.close()

    found = {
        sample.name.removeprefix("pyjs_spark_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("query") == "seen" and "le" not in sample.labels and "phase" not in sample.labels
    }
    assert (found["rows_total"], found["bytes_total"]) == (130, 1300)
    assert (found["batches_total"], found["running"], found["failures_total"]) == (3, 0, 0)
    assert (found["next_sequence"], found["lost_sequences_total"]) == (151, 20)
    assert found["batch_seconds_count"] == 3
    assert "lag_sequences" not in found  # it is removed when the query ends
    lines = [
        line.split(" in ")[0] + line[line.rindex(" s; ") :] for line in caplog.messages if " rows" in line
    ]
    assert lines == [
        f"query seen: batch 0, 60 rows, 600 bytes s; {filler.name} next 61, lag 40",
        f"query seen: batch 1, 40 rows, 400 bytes s; {filler.name} next 101, lag 0",
        f"query seen: batch 2, 30 rows, 300 bytes s; {filler.name} next 151, lag 0",
    ]
    assert f"query seen: 20 sequences of {filler.name} are lost" in caplog.messages
    assert "100/100" in shown.getvalue()
