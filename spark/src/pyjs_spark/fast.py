"""The choice of decoders: the compiled ones if the package pyjs-spark-fast of the same version is installed.

A worker may lack that package, or have another version of it than that of the pyjs-spark which the driver ships
with --py-files. Then the worker uses the decoders in plain Python.
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
