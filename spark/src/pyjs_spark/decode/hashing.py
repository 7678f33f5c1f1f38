"""XXH64, from the compiled decoders if they are installed, otherwise from the package xxhash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs_spark import fast
from pyjs_spark.errors import SparkMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    Bytes = bytes | bytearray | memoryview


def _found() -> Callable[[Bytes, int], int]:
    if fast.IS_THERE:
        from pyjs_spark_fast.entries import xxh64

        return xxh64
    try:
        import xxhash

        return lambda data, seed: int(xxhash.xxh64_intdigest(data, seed))
    except ImportError:
        return _missing


def _missing(data: Bytes, seed: int) -> int:
    raise SparkMissing(
        "reading files of a server needs the package xxhash or pyjs-spark-fast; pip install 'pyjs-spark[store]' here"
        " and on every worker"
    )


xxh64 = _found()
