"""Metrics of streaming queries for Prometheus, with its own library (package prometheus_client).

    from pyjs_spark.observe.listener import attach
    from pyjs_spark.observe.prometheus import QueryMetrics
    metrics = QueryMetrics()
    attach(spark, metrics)
    metrics.serve(9108)

Every metric has the label `query`: the name of the query, or its id. Counters begin at 0 when the process
starts. The lag of a query is removed when the query ends, since it is no longer measured.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from pyjs_spark.errors import SparkMissing
from pyjs_spark.observe.progress import BatchDone, QueryKey, StreamPart

INSTALL = "pip install 'pyjs-spark[observe]'"
BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
# name, kind, labels after `query`, help text; the library appends _total to the names of counters
TABLE: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("running", "gauge", (), "1 while the query runs"),
    ("failures", "counter", (), "Ends of the query by an error"),
    ("batches", "counter", (), "Batches that are done"),
    ("batch_seconds", "histogram", (), "Time of a batch"),
    ("phase_seconds", "counter", ("phase",), "Time of the parts of batches, by Spark's names"),
    ("rows", "counter", (), "Rows that were read"),
    ("bytes", "counter", (), "Bytes of payloads that were read, where the query is measured"),
    ("late_rows", "counter", (), "Rows behind the watermark that Spark dropped"),
    ("state_rows", "gauge", (), "Rows in the state of the query"),
    ("next_sequence", "gauge", ("stream",), "The sequence after the last one that was read"),
    ("lag_sequences", "gauge", ("stream",), "Sequences of the stream that were not read yet"),
    ("lost_sequences", "counter", ("stream",), "Sequences that were gone before they were read"),
    ("observed", "gauge", ("observation", "metric"), "The last values of DataFrame.observe"),
)


class QueryMetrics:
    """A reporter that counts in a registry of prometheus_client, by default the global registry.

    Creating it raises SparkMissing if prometheus_client is not installed.
    """

    def __init__(self, registry: Any = None) -> None:
        if importlib.util.find_spec("prometheus_client") is None:
            raise SparkMissing(f"the package prometheus_client is not installed; {INSTALL}")
        import prometheus_client as library

        kinds = {"gauge": library.Gauge, "counter": library.Counter, "histogram": library.Histogram}
        self._library = library
        self.registry = library.REGISTRY if registry is None else registry
        self._of = {
            name: kinds[kind](
                f"pyjs_spark_{name}",
                text,
                ("query", *labels),
                registry=self.registry,
                **({"buckets": BATCH_SECONDS} if kind == "histogram" else {}),
            )
            for name, kind, labels, text in TABLE
        }
        self._lost: dict[tuple[str, str], int] = {}  # run and stream -> losses that were counted
        self._streams: dict[str, set[str]] = {}  # run -> streams for which the run shows a lag
        self._serving: list[tuple[Any, Any]] = []  # the library's servers, each with its thread

    def serve(self, port: int, address: str = "127.0.0.1") -> int:
        """Serve the metrics under http://address:port/metrics, and return the port.

        Port 0 selects any free port.
        """
        self._serving.append(self._library.start_http_server(port, addr=address, registry=self.registry))
        return int(self._serving[-1][0].server_port)

    def close(self) -> None:
        """Stop serving, and unregister the metrics, so that they can be registered again."""
        for server, thread in self._serving:
            server.shutdown()
            server.server_close()
            thread.join()
        self._serving.clear()
        for each in self._of.values():
            self.registry.unregister(each)

    def started(self, query: QueryKey) -> None:
        """Show that a query is running, and show its counters even if they are 0."""
        self._of["running"].labels(query.label).set(1)
        for name in ("failures", "batches", "rows"):
            self._of[name].labels(query.label)

    def batch(self, done: BatchDone) -> None:
        """Update the metrics with a batch."""
        query = done.query.label
        self._of["rows"].labels(query).inc(done.rows)
        if done.is_work:
            self._of["batches"].labels(query).inc()
            self._of["batch_seconds"].labels(query).observe(done.seconds)
        if done.size is not None:
            self._of["bytes"].labels(query).inc(done.size)
        self._of["late_rows"].labels(query).inc(done.late_rows)
        self._of["state_rows"].labels(query).set(done.state_rows)
        for phase, seconds in done.phases.items():
            self._of["phase_seconds"].labels(query, phase).inc(seconds)
        for (observation, metric), value in done.observed.items():
            self._of["observed"].labels(query, observation, metric).set(value)
        for part in done.streams:
            self._stream(done.query, part)

    def _stream(self, query: QueryKey, part: StreamPart) -> None:
        labels = (query.label, part.stream)
        self._streams.setdefault(query.run, set()).add(part.stream)
        self._of["next_sequence"].labels(*labels).set(part.next)
        self._of["lag_sequences"].labels(*labels).set(part.lag)
        before = self._lost.get((query.run, part.stream), 0)
        self._of["lost_sequences"].labels(*labels).inc(max(0, part.lost - before))
        self._lost[query.run, part.stream] = part.lost

    def ended(self, query: QueryKey, error: str) -> None:
        """Show that a query has ended, count a failure if it has an `error`, and remove its lags."""
        self._of["running"].labels(query.label).set(0)
        if error:
            self._of["failures"].labels(query.label).inc()
        for stream in self._streams.pop(query.run, set()):
            self._lost.pop((query.run, stream), None)
            self._of["lag_sequences"].remove(query.label, stream)
