"""Converts a decoder's columns to an Arrow record batch, without copying their bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyjs_spark.decode.schema import arrow_schema
from pyjs_spark.decode.wire import Taken
from pyjs_spark.read.ranges import ReadRange


def decoded_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that a decoder must fill for `columns`.

    The column ts is computed from ts_ns, and the column stream is constant.
    """
    names = dict.fromkeys("ts_ns" if name == "ts" else name for name in columns)
    return tuple(name for name in names if name != "stream")


class BatchMaker:
    """A factory for the record batches of one range, which have the schema of arrow_schema()."""

    def __init__(self, what: ReadRange) -> None:
        self._schema = arrow_schema(what.columns, what.headers)
        self._stream = what.stream
        self._columns = what.columns

    def make(self, taken: Taken) -> pa.RecordBatch:
        """Return a decoder's columns as a record batch, which then owns the buffers of the columns."""
        arrays = [
            self._array(name, field.type, taken)
            for name, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, kind: pa.DataType, taken: Taken) -> pa.Array:
        rows = taken.rows
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream, kind), rows)
        if name == "ts":
            ns = pa.Array.from_buffers(pa.int64(), rows, [None, *_buffers(taken, "ts_ns")])
            return pc.divide(ns, 1000).view(kind)
        if name != "headers":
            return pa.Array.from_buffers(kind, rows, [None, *_buffers(taken, name)])
        if not pa.types.is_map(kind):
            return pa.Array.from_buffers(kind, rows, _buffers(taken, name), taken.headerless)
        return _maps(kind, rows, taken.headerless, _buffers(taken, name))


def _maps(kind: pa.MapType, rows: int, headerless: int, buffers: list[pa.Buffer]) -> pa.Array:
    valid, entry_at, name_at, names, list_at, value_at, values = buffers
    entries, lists = name_at.size // 4 - 1, value_at.size // 4 - 1
    all_names = pa.Array.from_buffers(kind.key_type, entries, [None, name_at, names])
    all_values = pa.Array.from_buffers(kind.item_type.value_type, lists, [None, value_at, values])
    grouped = pa.Array.from_buffers(kind.item_type, entries, [None, list_at], children=[all_values])
    pairs = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), entries, [None], children=[all_names, grouped]
    )
    return pa.Array.from_buffers(kind, rows, [valid, entry_at], headerless, children=[pairs])


def _buffers(taken: Taken, name: str) -> list[pa.Buffer]:
    return [pa.py_buffer(buffer) for buffer in taken.columns[name]]
