"""A listener for the streaming queries of a session; it passes each report to reporters.

    from pyjs_spark.observe.listener import attach
    from pyjs_spark.observe.lines import LogLines
    attach(spark, LogLines())

Spark calls the listener in a separate thread, one event after another, some time after the batch. An error in a
reporter is logged and does not affect the query. The listener works in a local session and over Spark Connect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming import StreamingQueryListener

from pyjs_spark.observe.progress import OBSERVED, BatchDone, QueryKey, batch_of

LOG = logging.getLogger("pyjs_spark")


class Reporter(Protocol):
    """A receiver of the events of streaming queries."""

    def started(self, query: QueryKey) -> None:
        """Report the start of a query."""

    def batch(self, done: BatchDone) -> None:
        """Report a completed batch."""

    def ended(self, query: QueryKey, error: str) -> None:
        """Report the end of a query; `error` is "" if it was stopped, or has read all messages."""


class QueryListener(StreamingQueryListener):
    """A listener of Spark that passes events of queries on to reporters."""

    def __init__(self, *reporters: Reporter) -> None:
        super().__init__()
        self._reporters = reporters
        self._running: dict[str, QueryKey] = {}  # by the id of the run

    # The names of the methods are Spark's.
    def onQueryStarted(self, event: Any) -> None:
        """Report the start of a query to the reporters."""
        query = QueryKey(str(event.id), str(event.runId), event.name or "")
        self._running[query.run] = query
        self._each(lambda reporter: reporter.started(query))

    def onQueryProgress(self, event: Any) -> None:
        """Report a completed batch to the reporters."""
        done = batch_of(event.progress.json)
        self._each(lambda reporter: reporter.batch(done))

    def onQueryIdle(self, event: Any) -> None:
        """Ignore the report of an idle query."""

    def onQueryTerminated(self, event: Any) -> None:
        """Report the end of a query to the reporters."""
        run = str(event.runId)
        query = self._running.pop(run, None) or QueryKey(str(event.id), run, "")
        self._each(lambda reporter: reporter.ended(query, event.exception or ""))

    def _each(self, call: Callable[[Reporter], None]) -> None:
        for reporter in self._reporters:
            try:
                call(reporter)
            except Exception:
                LOG.exception("reporter %s failed; the query is not affected", type(reporter).__name__)


def attach(spark: SparkSession, *reporters: Reporter) -> QueryListener:
    """Report all events of a session's queries to reporters from now on, and return the listener.

    `spark.streams.removeListener(listener)` ends the reports.
    """
    listener = QueryListener(*reporters)
    spark.streams.addListener(listener)
    return listener


def measured(messages: DataFrame) -> DataFrame:
    """Return a DataFrame with the same rows, whose number, bytes and newest `ts` Spark observes.

    Call this function directly after `load()`, since it does not count rows that an earlier filter removes. Spark
    counts in its own operators (`DataFrame.observe`), in batches and in streaming queries.
    """
    names = set(messages.columns)
    payload = next((each for each in ("data", "value") if each in names), None)
    size = fn.col("size") if "size" in names else fn.length(payload) if payload else None
    found = [fn.count(fn.lit(1)).alias("rows")]
    if size is not None:
        found.append(fn.coalesce(fn.sum(size), fn.lit(0)).alias("bytes"))
    if "ts" in names:
        found.append(fn.unix_micros(fn.max("ts")).alias("newest_us"))
    return messages.observe(OBSERVED, *found)
