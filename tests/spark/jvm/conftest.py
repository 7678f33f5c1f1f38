"""One real Spark for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import required
from tests.style.tree import ROOT

import pyjs_spark
from pyjs_spark import cli
from pyjs_spark.errors import SparkMissing
from pyjs_spark.pipelines import aggregate_command, replay_command
from pyjs_spark.sessions import check_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lacking() -> str:
    """Return what Spark needs and does not find here, or nothing."""
    try:
        check_installed()
    except SparkMissing as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; skip them, all for one reason, where Spark cannot run."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    missing = lacking() if ours and not required("spark") else ""
    for item in ours:
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark"))
        item.add_marker(pytest.mark.timeout(300))
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores; workers find this tree's modules."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    made = pyjs_spark.session("tests", "local[2]", **settings)
    yield made
    made.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `pyjs-pipeline` in this process and in the Spark of all tests; test_pipeline.py has one of its own."""

    @contextmanager
    def shared(*settings: object) -> Iterator[SparkSession]:
        yield spark

    for module in (replay_command, aggregate_command):
        monkeypatch.setattr(module, "own_spark", shared)

    def run(*argv: str) -> tuple[int, str, str]:
        code = cli.main(list(argv))
        said = capsys.readouterr()
        return code, said.out, "".join(line for line in said.err.splitlines(True) if "pyjs-pipeline" in line)

    return run
