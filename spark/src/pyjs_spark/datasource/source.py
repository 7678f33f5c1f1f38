"""Data source `jetstream`: the classes that Spark's Python Data Source API calls.

This is a thin layer: options, plans, offsets and reading are in modules that know nothing of Spark. The data source
is created in a process beside the driver and pickled there. Spark starts several such processes for a query.
Modules that only some of the processes need are imported inside functions, which saves 0.15 s of processor time.

Source: pyspark.sql.datasource of 4.2 and 4.3; each pitfall has a test in
spark/tests/datasource/test_source.py.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from pyjs_spark.datasource.readers import FilteringReader, JetStreamReader, JetStreamStreamReader, RangeReader
from pyjs_spark.decode.schema import project, spark_ddl
from pyjs_spark.options.reading import Options, check_batch, check_stream, parse_options
from pyjs_spark.options.writing import SinkOptions, is_of_writing, parse_sink_options
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import PARALLELISM
from pyjs_spark.read.planner import Planner

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyjs_spark.datasource.sink import JetStreamStreamWriter, JetStreamWriter


class JetStreamSource(DataSource):
    """The data source `jetstream`: messages of streams as rows."""

    parallelism = PARALLELISM  # tasks of a read without minPartitions

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Checked here, because Spark calls `schema()` only if the user gave none.
        super().__init__(options)
        self._sink = parse_sink_options(options) if is_of_writing(options) else None
        self._read = None if self._sink is not None else parse_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "jetstream"

    def schema(self) -> str:
        """Return the schema of a read for which the user gave no schema, in DDL."""
        options = self._reading()
        if options.is_table:
            from pyjs_spark.datasource import tables

            return tables.ddl(options)
        return spark_ddl(options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read that has the columns in `schema`."""
        options = self._reading()
        check_batch(options)
        if options.is_table:
            from pyjs_spark.datasource import tables

            return tables.reader(options, schema.fields, self.parallelism)
        # Spark refuses every read by a class that has pushFilters if its setting for filter pushdown is off.
        kind = FilteringReader if options.pushdown else JetStreamReader
        return kind(*self._parts(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query that has the columns in `schema`."""
        options = self._reading()
        check_stream(options)
        if options.is_table:
            from pyjs_spark.datasource import tables

            return tables.stream_reader(options, schema.fields, self.parallelism)
        return JetStreamStreamReader(*self._parts(options, schema))

    # When a batch is committed, Spark passes arguments to these two by the names of their parameters.
    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """Return the writer of a batch."""
        from pyjs_spark.datasource import sink

        return sink.batch_writer(self._writing(), schema.fields, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """Return the writer of a streaming query."""
        from pyjs_spark.datasource import sink

        return sink.stream_writer(self._writing(), schema.fields, overwrite)

    def _parts(self, options: Options, schema: StructType) -> tuple[RangeReader, Planner]:
        projection = project(schema.fields, options.include_headers)
        return RangeReader(options, projection), Planner(options, api_of(options), self.parallelism)

    def _reading(self) -> Options:
        return self._read if self._read is not None else parse_options(self.options)

    def _writing(self) -> SinkOptions:
        return self._sink if self._sink is not None else parse_sink_options(self.options)


def source_of(parallelism: int | None) -> type[JetStreamSource]:
    """Return the source class for a Spark session whose `spark.default.parallelism` is `parallelism`.

    None means that the setting is absent. The class stores the number, since the process that plans a read does not
    know the session.
    """
    if parallelism is None:
        return JetStreamSource
    return type("JetStreamSource", (JetStreamSource,), {"parallelism": parallelism})
