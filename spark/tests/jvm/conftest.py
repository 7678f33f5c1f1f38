"""One real Spark for all tests of this folder.

A test for both kinds of server runs with one of them, alternating: our server for a module's first test, nats-server
for its second. With PYJS_SPARK_MATRIX=1 (`make spark-matrix`) each runs with both, and Spark has its default settings
in place of faster ones.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import required
from spark.tests.support.java import QUICK_JAVA, QUICK_PLANS
from spark.tests.support.places import PYTHONPATH

import pyjs_spark
from pyjs_spark.cli import main as cli
from pyjs_spark.datasource.sessions import check_installed
from pyjs_spark.errors import SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IS_MATRIX = os.environ.get("PYJS_SPARK_MATRIX", "") not in ("", "0")
# Spark's own manager for local directories runs the program readlink twice for each file of a checkpoint.
QUICK_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.streaming.checkpointFileManagerClass": QUICK_CHECKPOINTS,
    **QUICK_PLANS,
}


def lacking() -> str:
    """Return the name of a missing requirement of Spark, or ""."""
    try:
        check_installed()
    except SparkMissing as error:
        return str(error)
    return ""


def is_ours(item: pytest.Item) -> bool:
    """Return whether a test is in this directory."""
    return Path(__file__).parent in item.path.parents


def not_their_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return one of each two tests that differ only in the kind of server."""
    modules: defaultdict[Path, dict[tuple[str, str], dict[object, pytest.Item]]] = defaultdict(dict)
    for item in items:
        said = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        kind = said.pop("server", None)
        test = (item.nodeid.partition("[")[0], repr(sorted(said.items())))
        modules[item.path].setdefault(test, {})[kind] = item
    left = []
    for tests in modules.values():
        for number, kinds in enumerate(tests.values()):
            turn = ("ours", "peer")[number % 2]
            left += [item for kind, item in kinds.items() if turn in kinds and kind != turn]
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all tests of this directory; skip them, for a single reason, if Spark cannot run."""
    is_named = any("[" in argument for argument in config.args)  # as test_spark.py::test_a_view_in_sql[peer]
    left = [] if IS_MATRIX or is_named else not_their_turn([each for each in items if is_ours(each)])
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
    ours = [item for item in items if is_ours(item)]
    missing = lacking() if ours and not required("spark") else ""
    for item in ours:
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores; workers can import this tree's modules."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = os.pathsep.join([PYTHONPATH, os.environ.get("PYTHONPATH", "")])
    settings = {
        **({} if IS_MATRIX else QUICK),
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        # for a worker's first connection: machines are busy
        "spark.python.authenticate.socketTimeout": "120s",
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
    """Run `pyjs-pipeline` in this process and in the shared Spark; test_pipeline.py has its own."""

    @contextmanager
    def shared(*settings: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(cli, "own_spark", shared)

    def run(*argv: str) -> tuple[int, str, str]:
        code = cli.main(list(argv))
        said = capsys.readouterr()
        return code, said.out, "".join(line for line in said.err.splitlines(True) if "pyjs-pipeline" in line)

    return run
