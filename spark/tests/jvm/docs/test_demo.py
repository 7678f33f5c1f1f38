"""The demo of `make spark-demo`, in a short form: every number is checked, and a wrong one is reported."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess
from tests.style.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 5_000


@pytest.mark.parametrize("server", ["ours"], indirect=True)  # other tests run its parts on both servers
def test_a_short_demo_is_reconciled(
    spark: SparkSession,
    server: ServerProcess,
    filler: Filler,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = runpy.run_path(str(ROOT / "benchmarks" / "spark_demo.py"))

    try:
        story = names["Demo"](spark, f"nats://127.0.0.1:{server.port}", tmp_path, MESSAGES).run()
    finally:
        for name in ("ORDERS", "ORDERS_AGAIN", "KV_RATES"):
            filler.raw.try_api(f"STREAM.DELETE.{name}")

    assert [(what, found) for what, found, expected in story.checks if found != expected] == []
    assert [name for name, _, _ in story.steps] == ["write", "archive", "windows", "replay", "reconcile"]
    assert story.is_right
    story.check("what is wrong", 1, 2)
    names["show"](story)
    assert not story.is_right
    assert "WRONG what is wrong               1, not 2" in capsys.readouterr().out
