"""Reports of queries: Spark's progress becomes metrics, log lines and a progress bar."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

import pytest

from pyjs_spark.errors import SparkMissing
from pyjs_spark.observe import bar as bars
from pyjs_spark.observe import prometheus
from pyjs_spark.observe.bar import ProgressBar
from pyjs_spark.observe.lines import LogLines
from pyjs_spark.observe.progress import BatchDone, QueryKey, StreamPart, batch_of
from pyjs_spark.observe.prometheus import QueryMetrics

QUERY = QueryKey("id-1", "run-1", "orders")
PART = StreamPart("ORDERS", 81, 20, 40, 0)
DONE = BatchDone(QUERY, 1, 40, 0.945, size=80, streams=(PART,), phases={"addBatch": 0.544})


def offset(seq: int, created: str = "then", **more: object) -> dict[str, object]:
    return {"v": 1, "streams": {"ORDERS": {"next": seq, "created": created}}, **more}


def report(**changed: object) -> str:
    """Return a report as Spark 4.3 makes it."""
    source = {"description": "jetstream", "startOffset": offset(41), "endOffset": offset(81),
              "latestOffset": offset(101), "numInputRows": 40}  # fmt: skip
    said = {"id": "id-1", "runId": "run-1", "name": "orders", "batchId": 1, "batchDuration": 945, "numInputRows": 40,
            "durationMs": {"addBatch": 544}, "stateOperators": [], "sources": [source],
            "observedMetrics": {"jetstream": {"rows": 40, "bytes": 80}}}  # fmt: skip
    return json.dumps({**said, **changed})


def sources(**changed: object) -> list[dict[str, object]]:
    return [{**json.loads(report())["sources"][0], **changed}]


# -- reports of Spark -----------------------------------------------------------------------------------------------


def test_a_report_is_a_batch_with_its_streams() -> None:
    assert batch_of(report()) == replace(
        DONE, observed={("jetstream", "rows"): 40, ("jetstream", "bytes"): 80}
    )


def test_the_first_batch_of_a_query_has_no_number_of_sequences() -> None:
    (part,) = batch_of(report(sources=sources(startOffset=None))).streams

    assert (part.sequences, part.next, part.lag) == (None, 81, 20)


def test_a_stream_that_was_made_again_has_neither_sequences_nor_a_lag() -> None:
    (part,) = batch_of(report(sources=sources(endOffset=offset(7, "now")))).streams

    assert (part.sequences, part.next, part.lag) == (None, 7, 0)


def test_offsets_may_be_text() -> None:
    said = sources(endOffset=json.dumps(offset(81)), latestOffset=json.dumps(offset(90, lost={"ORDERS": 3})))

    (part,) = batch_of(report(sources=said)).streams

    assert (part.lag, part.lost) == (9, 3)


@pytest.mark.parametrize("end", [None, 17, {"orders": {"0": 5}}, {"v": 2, "streams": {}}])
def test_sources_of_other_formats_are_left_out(end: object) -> None:
    assert batch_of(report(sources=sources(endOffset=end))).streams == ()


def test_rows_of_the_state_and_late_rows_are_added_up() -> None:
    states = [
        {"numRowsTotal": 5, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 2, "numRowsDroppedByWatermark": 0},
    ]

    done = batch_of(report(stateOperators=states))

    assert (done.state_rows, done.late_rows) == (7, 1)


def test_only_numbers_are_taken_from_observations() -> None:
    done = batch_of(
        report(observedMetrics={"mine": {"n": 2, "ratio": 0.5, "text": "x", "none": None, "is": True}})
    )

    assert dict(done.observed) == {("mine", "n"): 2, ("mine", "ratio"): 0.5}
    assert done.size is None


def test_a_report_without_a_batch_is_no_work() -> None:
    done = batch_of(report(durationMs={"latestOffset": 3}, numInputRows=0, name=None))

    assert (done.is_work, done.query.label) == (False, "id-1")


# -- log lines ------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = LogLines()

    lines.started(QUERY)
    lines.batch(replace(DONE, late_rows=2))
    lines.batch(replace(DONE, rows=0))
    lines.ended(QUERY, "")

    assert caplog.messages == [
        "query orders: started, run run-1",
        "query orders: batch 1, 40 rows, 80 bytes, 2 late in 0.945 s; ORDERS next 81, lag 20",
        "query orders: ended",
    ]


def test_a_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = LogLines()
    for lost in (0, 5, 5, 7):
        lines.batch(replace(DONE, rows=0, streams=(replace(PART, lost=lost),)))

    assert caplog.messages == [
        "query orders: 5 sequences of ORDERS are lost",
        "query orders: 2 sequences of ORDERS are lost",
    ]


def test_an_error_is_one_line_of_bounded_length(caplog: pytest.LogCaptureFixture) -> None:
    LogLines().ended(QUERY, "gone\n" + "at x" * 1000)

    (line,) = caplog.messages
    assert line.startswith("query orders: failed: gone at x")
    assert len(line) < 550


# -- metrics --------------------------------------------------------------------------------------------------------


def scraped(metrics: QueryMetrics) -> dict[str, float]:
    """Return all samples of the registry, as the library's parser reads them."""
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    text = generate_latest(metrics.registry).decode()
    return {
        ",".join(
            (sample.name.removeprefix("pyjs_spark_"), *(value for value in sample.labels.values()))
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture
def metrics() -> QueryMetrics:
    library = pytest.importorskip("prometheus_client")
    return QueryMetrics(library.CollectorRegistry())


def test_batches_are_counted(metrics: QueryMetrics) -> None:
    metrics.started(QUERY)
    assert scraped(metrics) == {
        "running,orders": 1, "failures_total,orders": 0, "batches_total,orders": 0, "rows_total,orders": 0,
    }  # fmt: skip

    metrics.batch(replace(DONE, observed={("jetstream", "bytes"): 80}, state_rows=3, late_rows=1))
    metrics.batch(replace(DONE, streams=(replace(PART, next=101, lag=0),)))
    found = scraped(metrics)

    assert {name: found[name] for name in found if "bucket" not in name} == {
        "running,orders": 1, "failures_total,orders": 0, "batches_total,orders": 2, "rows_total,orders": 80,
        "bytes_total,orders": 160, "late_rows_total,orders": 1, "state_rows,orders": 0,
        "batch_seconds_count,orders": 2, "batch_seconds_sum,orders": 1.89,
        "phase_seconds_total,addBatch,orders": 1.088, "observed,bytes,jetstream,orders": 80,
        "next_sequence,orders,ORDERS": 101, "lag_sequences,orders,ORDERS": 0, "lost_sequences_total,orders,ORDERS": 0,
    }  # fmt: skip
    assert (found["batch_seconds_bucket,0.5,orders"], found["batch_seconds_bucket,1.0,orders"]) == (0, 2)


def test_losses_are_counted_once_and_again_in_the_next_run(metrics: QueryMetrics) -> None:
    for lost in (3, 3, 5):
        metrics.batch(replace(DONE, streams=(replace(PART, lost=lost),)))
    metrics.ended(QUERY, "")
    metrics.batch(replace(DONE, query=replace(QUERY, run="run-2"), streams=(replace(PART, lost=2),)))

    assert scraped(metrics)["lost_sequences_total,orders,ORDERS"] == 7


def test_the_end_of_a_query_takes_its_lag_away(metrics: QueryMetrics) -> None:
    metrics.started(QUERY)
    metrics.batch(DONE)
    metrics.ended(QUERY, "it failed")
    found = scraped(metrics)

    assert (found["running,orders"], found["failures_total,orders"]) == (0, 1)
    assert not [name for name in found if name.startswith("lag")]


def test_a_report_without_a_batch_counts_none(metrics: QueryMetrics) -> None:
    metrics.batch(replace(DONE, is_work=False, rows=0, size=None))

    assert "batches_total,orders" not in scraped(metrics)


def test_closed_metrics_may_be_made_again(metrics: QueryMetrics) -> None:
    metrics.serve(0)
    metrics.close()

    again = QueryMetrics(metrics.registry)
    again.started(QUERY)

    assert scraped(again)["running,orders"] == 1


@pytest.mark.parametrize("kind", [QueryMetrics, ProgressBar])
def test_a_missing_library_is_named(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (prometheus, bars):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(SparkMissing, match=r"is not installed; pip install 'pyjs-spark\[observe\]'"):
        kind()


# -- the bar --------------------------------------------------------------------------------------------------------


def test_the_bar_advances_by_sequences_and_grows_with_the_stream() -> None:
    pytest.importorskip("tqdm")
    shown = io.StringIO()
    bar = ProgressBar(shown)

    bar.started(QUERY)
    bar.batch(replace(DONE, streams=(replace(PART, next=41, lag=60, sequences=None),)))
    bar.batch(DONE)
    bar.batch(replace(DONE, rows=9, streams=(replace(PART, next=101, lag=0, sequences=20),)))
    bar.ended(QUERY, "")

    assert "orders:   0%" in shown.getvalue() or "orders: 0 sequences" in shown.getvalue()
    assert "100/100" in shown.getvalue()
    assert shown.getvalue().endswith("\n")


def test_a_batch_of_a_query_that_was_there_before_has_no_bar() -> None:
    pytest.importorskip("tqdm")
    shown = io.StringIO()
    bar = ProgressBar(shown)

    bar.batch(DONE)
    bar.ended(QUERY, "")

    assert shown.getvalue() == ""


# -- the listener ---------------------------------------------------------------------------------------------------


class Event:
    """An event as Spark passes it."""

    def __init__(self, **said: object) -> None:
        self.__dict__.update(id="id-1", runId="run-1", name="orders", exception=None, progress=None, **said)


class Heard:
    """A reporter that records its calls."""

    def __init__(self, *, fails: bool = False) -> None:
        self.said: list[object] = []
        self._fails = fails

    def started(self, query: QueryKey) -> None:
        self._note("started", query.label)

    def batch(self, done: BatchDone) -> None:
        self._note("batch", done.query.label, done.rows)

    def ended(self, query: QueryKey, error: str) -> None:
        self._note("ended", query.label, error)

    def _note(self, *what: object) -> None:
        self.said.append(what)
        if self._fails:
            raise ValueError("a fault of the reporter")


def test_a_failing_reporter_does_not_keep_reports_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    from pyjs_spark.observe.listener import QueryListener

    failing, heard = Heard(fails=True), Heard()
    listener = QueryListener(failing, heard)
    progress = Event()
    progress.json = report()  # type: ignore[attr-defined]

    listener.onQueryStarted(Event())
    event = Event()
    event.progress = progress  # type: ignore[attr-defined]
    listener.onQueryProgress(event)
    listener.onQueryIdle(Event())
    listener.onQueryTerminated(Event())
    unknown = Event()
    unknown.exception = "no"  # type: ignore[attr-defined]
    listener.onQueryTerminated(unknown)

    assert heard.said == [
        ("started", "orders"), ("batch", "orders", 40), ("ended", "orders", ""), ("ended", "id-1", "no"),
    ]  # fmt: skip
    assert failing.said == heard.said
    assert caplog.messages == ["reporter Heard failed; the query is not affected"] * 4
