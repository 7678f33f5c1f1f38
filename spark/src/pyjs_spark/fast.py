"""Whether the compiled decoders are used: the package pyjs-spark-fast, where it is there in the version of this one.

A worker may have another version of it than the package that a driver ships with --py-files, or none; then the twins
in plain Python decode.
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
