"""The examples of the documents run as printed, in their order."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.support.documents import NOTEBOOKS, SPARK, examples, quoted, table
from tests.conformance.harness.process import ServerProcess
from tests.style.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def orders(server: ServerProcess) -> Iterator[Filler]:
    """The stream that the examples read."""
    found = Filler(server.port, "ORDERS")
    found.create(subjects=["orders.>"])
    found.fill(6)
    assert b'"seq"' in found.raw.request(b"orders.new", b"one loaf of bread")
    found.raw.api("STREAM.CREATE.REPORTS", name="REPORTS", subjects=["reports.>"], storage="memory")
    yield found
    found.api("STREAM.DELETE.ORDERS")
    found.api("STREAM.DELETE.REPORTS")
    found.raw.close()


@pytest.fixture
def tables(orders: Filler) -> Iterator[Filler]:
    """The bucket and the object store that the examples read."""
    made = {"SETTINGS": ("KV_SETTINGS", "$KV.SETTINGS.>"), "FILES": ("OBJ_FILES", "$O.FILES.>")}
    for name, subject in made.values():
        orders.raw.api(f"STREAM.CREATE.{name}", name=name, subjects=[subject], max_msgs_per_subject=1)
    assert b'"seq"' in orders.raw.request(b"$KV.SETTINGS.shop.name", b"corner shop")
    described = json.dumps({"name": "list.txt", "size": 3, "chunks": 1})
    assert b'"seq"' in orders.raw.request(b"$O.FILES.M.bGlzdC50eHQ=", described.encode())
    yield orders
    for name, _ in made.values():
        orders.raw.api(f"STREAM.DELETE.{name}")


@pytest.fixture
def here(server: ServerProcess, tmp_path: Path) -> dict[str, str]:
    """Return texts in the documents, and their replacements in this test."""
    return {"127.0.0.1:4222": f"127.0.0.1:{server.port}", "/data/": f"{tmp_path}/"}


@pytest.fixture(autouse=True)
def same_settings(spark: SparkSession) -> Iterator[None]:
    """Undo the settings that `session()` changes in the shared session."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_the_examples_of_the_spark_document_run(
    spark: SparkSession, tables: Filler, here: dict[str, str], tmp_path: Path
) -> None:
    names: dict[str, object] = {}
    answers = []
    for language, text in examples(SPARK.read_text()):
        for there, instead in here.items():
            text = text.replace(there, instead)
        if language == "python":
            exec(compile(text, str(SPARK), "exec"), names)
        elif language == "sql":
            answers.append(spark.sql(text).collect())

    assert answers == [[], [("orders.new", 1, 7)]]
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 7
    assert spark.read.parquet(f"{tmp_path}/lake").selectExpr("count(DISTINCT seq)").first() == (7,)
    assert spark.read.parquet(f"{tmp_path}/settings").collect() == [("shop.name", "PUT", "corner shop", 1)]
    assert [row.name for row in names["files"].collect()] == ["list.txt"]  # type: ignore[attr-defined]
    assert "orders" in names
    reports = tables.raw.api("STREAM.INFO.REPORTS", subjects_filter="reports.>")["state"]
    assert reports["subjects"] == {
        "reports.orders.0": 1,
        "reports.orders.1": 1,
        "reports.orders.2": 1,
        "reports.orders.new": 1,
        "reports.copy.orders.0": 2,
        "reports.copy.orders.1": 2,
        "reports.copy.orders.2": 2,
        "reports.copy.orders.new": 1,
    }


def test_the_example_of_the_readme_runs(
    spark: SparkSession, orders: Filler, capsys: pytest.CaptureFixture[str], server: ServerProcess
) -> None:
    (text,) = [
        text for _, text in examples((ROOT / "spark" / "README.md").read_text()) if "pyjs_spark" in text
    ]
    told = text.replace(".load()", f'.option("servers", "nats://127.0.0.1:{server.port}").load()')

    exec(compile(told, "README.md", "exec"), {})

    assert "orders.new" in capsys.readouterr().out


@pytest.fixture
def notebook(server: ServerProcess) -> Iterator[Filler]:
    """The streams that the notebooks read, with the orders described in their README."""
    found = Filler(server.port, "ORDERS")
    streams = {"ORDERS": "orders.>", "COPIES": "copies.>", "AGAIN": "again.>", "KV_RATES": "$KV.RATES.>"}
    for name, subject in streams.items():
        found.raw.api(f"STREAM.CREATE.{name}", name=name, subjects=[subject], storage="memory")
    for line in (NOTEBOOKS / "README.md").read_text().splitlines():
        _, command, publish = line.partition("nats pub ")
        if command:
            subject, payload = shlex.split(publish)
            assert b'"seq"' in found.raw.request(subject.encode(), payload.encode())
    yield found
    for name in ("ORDERS", "COPIES", "AGAIN", "KV_RATES"):
        found.raw.try_api(f"STREAM.DELETE.{name}")
    found.raw.close()


SAID = {
    "first-dataframe": "1 paid\n[[Row(subject='orders.new', messages=3, first=1, last=4), "
    "Row(subject='orders.paid', messages=1, first=3, last=3)]]\n",
    "streaming": "4 orders\n0 new orders\n",
    "writing": "1000 messages\n4 orders copied\n",
    "pipelines": "4 rows archived\n[(1, 5)]\nReplayed(low=1, high=5, rows=4, duplicates=0)\n4 messages replayed\n"
    '[Row(value=\'{"orders":1,"revenue":12.50}\'), Row(value=\'{"orders":3,"revenue":19.50}\')]\n',
}


def test_the_examples_of_monitoring_run(
    spark: SparkSession, orders: Filler, here: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("prometheus_client")
    caplog.set_level("INFO", "pyjs_spark.query")
    names: dict[str, object] = {}
    for _, text in examples((NOTEBOOKS / "monitoring.md").read_text()):
        for there, instead in {**here, "serve(9108)": "serve(0)"}.items():
            text = text.replace(there, instead)
        exec(compile(text, "monitoring", "exec"), names)

    assert library.REGISTRY.get_sample_value("pyjs_spark_rows_total", {"query": "orders"}) is not None
    spark.streams.removeListener(names["listener"])  # type: ignore[arg-type]
    names["metrics"].close()  # type: ignore[attr-defined]
    listed = table((NOTEBOOKS / "monitoring.md").read_text(), "metric")
    found = {quoted(line[0]).removesuffix("_total") for line in listed}
    assert found == {f"pyjs_spark_{name}" for name, *_ in metric_table()}


def metric_table() -> tuple[tuple[object, ...], ...]:
    from pyjs_spark.observe.prometheus import TABLE

    return TABLE


@pytest.mark.parametrize("name", SAID)
def test_a_notebook_runs(
    spark: SparkSession, notebook: Filler, here: dict[str, str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    names: dict[str, object] = {}
    for language, text in examples((NOTEBOOKS / f"{name}.md").read_text()):
        for there, instead in here.items():
            text = text.replace(there, instead)
        if language == "python":
            exec(compile(text, name, "exec"), names)
        elif language == "sql" and (rows := spark.sql(text).collect()):
            print([rows])

    lines = [line for line in capsys.readouterr().out.splitlines() if line[:1] not in ("+", "|", "")]
    assert "\n".join(line for line in lines if not line.startswith(('{"v"', "only"))) + "\n" == SAID[name]
