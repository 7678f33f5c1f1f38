"""Archives of every format by one name each: Parquet files, or a table of Delta or Iceberg for each stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyjs_spark.lake import archive as files
from pyjs_spark.lake.archive import Holding, Written
from pyjs_spark.lake.tables import table, tables
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.options.reading import Options
from pyjs_spark.read.ranges import ReadRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyjs_spark.lake.watch import Watch

__all__ = ["Lake", "archive", "check_installed", "look", "plan", "task_of", "write"]


def check_installed(kind: str) -> None:
    """Raise SparkMissing if the library of a format is not installed."""
    if kind != "parquet":
        table.check_installed(kind)


def archive(
    spark: SparkSession,
    lake: Lake,
    options: Options,
    rows_per_file: int = 500_000,
    watch: Watch | None = None,
) -> list[Written]:
    """Write the messages that the lake lacks; return the new files. Raises as archive.archive."""
    return write(spark, lake, options, plan(lake, options, rows_per_file), watch)


def look(lake: Lake, options: Options) -> list[Holding]:
    """Return the archive of each stream; changes nothing. Raises OptionError: it has another format."""
    found = files.look(lake.root, options) if lake.format == "parquet" else tables.look(lake, options)
    for holding in found:
        tables.refuse_other(lake, holding.state.name)
    return found


def plan(lake: Lake, options: Options, rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the lake lacks, and create the folders to write them."""
    look(lake, options)
    if lake.format == "parquet":
        return files.plan(lake.root, options, rows_per_file)
    return tables.plan(lake, options, rows_per_file)


def task_of(lake: Lake, options: Options) -> Callable[..., list[Any]]:
    """Return a worker's function for one range: it writes the files, and returns one dataclass for each."""
    if lake.format == "parquet":
        return partial(files.write_range, options.connect, lake.root)
    return tables.task_of(lake, options)


def write(
    spark: SparkSession, lake: Lake, options: Options, ranges: list[ReadRange], watch: Watch | None = None
) -> list[Written]:
    """Write planned ranges, each as a task; return the new files. `watch` is called for each finished one."""
    if lake.format == "parquet":
        return files.write(spark, lake.root, options, ranges, watch)
    return tables.write(spark, lake, options, ranges, watch)
