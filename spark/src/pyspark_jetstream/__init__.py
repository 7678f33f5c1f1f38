"""The package through which Spark finds the format `jetstream` without registration.

Spark imports every installed top-level package named `pyspark_*` and uses its DefaultSource. Spark does not find a
package from --py-files; a session with such a package must call `pyjs_spark.register(spark)`.
"""

from __future__ import annotations

from pyjs_spark.datasource.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
