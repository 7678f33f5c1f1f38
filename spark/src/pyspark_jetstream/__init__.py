"""The package by which Spark finds the format `jetstream` without registration.

Spark imports every installed top-level package named `pyspark_*` and uses its DefaultSource. It does not find one
that came with --py-files: there `pyjs_spark.register(spark)` is needed.
"""

from __future__ import annotations

from pyjs_spark.datasource.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
