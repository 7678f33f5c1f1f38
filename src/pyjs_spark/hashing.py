"""XXH64, of the compiled decoder where it was built, else of the package xxhash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs_spark.errors import SparkMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    Bytes = bytes | bytearray | memoryview


def _found() -> Callable[[Bytes, int], int]:
    try:
        from pyjs_spark._entries import xxh64

        return xxh64
    except ImportError:  # a worker may have the Python files alone
        pass
    try:
        import xxhash

        return lambda data, seed: int(xxhash.xxh64_intdigest(data, seed))
    except ImportError:
        return _missing


def _missing(data: Bytes, seed: int) -> int:
    raise SparkMissing(
        "reading files of a server needs the package xxhash, or this package compiled; pip install xxhash here and"
        " on every worker"
    )


xxh64 = _found()
