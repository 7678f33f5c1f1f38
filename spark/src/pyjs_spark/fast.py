"""The choice between the compiled decoders and those in plain Python.

The compiled decoders are used if the package pyjs-spark-fast is installed, in the version of this package. A worker
may lack pyjs-spark-fast, or have another version of it than that of the pyjs-spark in the driver's --py-files. Such a
worker uses the decoders in plain Python.
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
