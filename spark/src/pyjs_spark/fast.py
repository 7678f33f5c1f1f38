"""The choice of decoders: the compiled ones if the package pyjs-spark-fast of the same version is installed.

A worker may lack that package, or have a version of it that differs from the pyjs-spark in the driver's --py-files.
It then uses the decoders in plain Python.
"""

from __future__ import annotations

from pyjs_spark.version import VERSION


def _is_there() -> bool:
    try:
        from pyjs_spark_fast import VERSION as of_fast
    except ImportError:
        return False
    return of_fast == VERSION


IS_THERE = _is_there()
