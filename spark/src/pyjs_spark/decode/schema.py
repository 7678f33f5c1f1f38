"""Columns of the data source: names, types in Spark and in Arrow, and the check of a user's schema.

Spark does not prune the columns of a Python data source. If the user selects columns with `.schema("seq long,
subject string")`, only these are decoded. Spark accepts a batch only if its Arrow schema equals the one that Spark
derives from the Spark schema, including nullability.

    stream   the stream's name
    seq      sequence in the stream
    ts       time of storing, in microseconds, the resolution of Spark's timestamps
    ts_ns    time of storing in ns since 1970; only if the schema has this column
    subject  bytes that are not UTF-8 become U+FFFD
    headers  each name with its values, or the raw block, or no column (option includeHeaders)
    data     payload
    size     length of the payload
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyjs_spark.errors import SchemaError, suggestion

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("stream", "seq", "ts", "ts_ns", "subject", "headers", "data", "size")
DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name != "ts_ns")
NULLABLE = ("headers",)  # these columns are null if a message has no headers
# The type of each column as Spark writes it in a schema.
SPARK_TYPES = {
    "stream": "string",
    "seq": "bigint",
    "ts": "timestamp",
    "ts_ns": "bigint",
    "subject": "string",
    "headers": "map<string,array<string>>",
    "data": "binary",
    "size": "int",
}


class SparkType(Protocol):
    """The methods of a pyspark DataType that this module uses."""

    def simpleString(self) -> str:
        """Return the type as in DDL."""


class SparkField(Protocol):
    """The attributes of a pyspark StructField that this module uses."""

    name: str
    dataType: SparkType
    nullable: bool


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that a read fills, in order, with their names in Spark."""

    columns: tuple[str, ...]  # names of COLUMNS
    names: tuple[str, ...]  # as the schema spells them: Spark keeps their case
    nullable: tuple[bool, ...]


def spark_ddl(headers: str) -> str:
    """Return the default schema of a read, in DDL; `headers` is the option includeHeaders."""
    names = (name for name in DEFAULT_COLUMNS if name != "headers" or headers != "false")
    return ", ".join(f"{name} {spark_type(name, headers)}" for name in names)


def spark_type(column: str, headers: str) -> str:
    """Return the Spark type of a column; `headers` is the option includeHeaders."""
    return "binary" if column == "headers" and headers == "raw" else SPARK_TYPES[column]


def types_of(headers: str) -> dict[str, str]:
    """Return the types of all columns; `headers` is the option includeHeaders."""
    return {name: spark_type(name, headers) for name in COLUMNS}


def arrow_schema(columns: Sequence[str], headers: str) -> pa.Schema:
    """Return the Arrow schema of `columns`, equal to the one that Spark derives from their Spark types.

    `headers` is the option includeHeaders.
    """
    return pa_schema(Projection(tuple(columns), tuple(columns), (True,) * len(columns)), headers)


def pa_schema(projection: Projection, headers: str) -> pa.Schema:
    """Return the Arrow schema of a projection, with the names and nullability of the user's schema."""
    return typed_schema(projection, types_of(headers))


def typed_schema(projection: Projection, spark_types: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a projection.

    `spark_types` maps the columns of the projected table to their Spark types.
    """
    # imported lazily: callers that need only names and types of columns do not need pyarrow
    import pyarrow as pa

    header_map = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "map<string,array<string>>": header_map,
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        "struct<bucket:string,name:string>": pa.struct([("bucket", pa.string()), ("name", pa.string())]),
    }
    cells = zip(projection.columns, projection.names, projection.nullable, strict=True)
    return pa.schema([pa.field(name, types[spark_types[column]], null) for column, name, null in cells])


def project(fields: Sequence[SparkField], headers: str) -> Projection:
    """Return the columns that the fields of a schema select.

    `headers` is the option includeHeaders.

    Raises:
        SchemaError: a column does not exist, occurs twice or has another type.
    """
    if headers == "false" and any(field.name.lower() == "headers" for field in fields):
        raise SchemaError(
            "the schema asks for headers, but option includeHeaders=false; set it to map or raw"
        )
    return pick(fields, types_of(headers), NULLABLE)


def pick(
    fields: Sequence[SparkField], spark_types: Mapping[str, str], nullable: Collection[str]
) -> Projection:
    """Return the columns that the fields of a schema select.

    `spark_types` maps all allowed columns to their types; `nullable` has the columns that may be null.

    Raises:
        SchemaError: a column does not exist, occurs twice, has another type, or may be null but is declared NOT NULL.
    """
    if not fields:
        raise SchemaError(f"the schema has no column; name some of {', '.join(spark_types)}")
    columns = tuple(_column(field, spark_types, nullable) for field in fields)
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise SchemaError(f"the schema has the column {twice[0]} twice; name it once")
    return Projection(
        columns, tuple(field.name for field in fields), tuple(field.nullable for field in fields)
    )


def _column(field: SparkField, spark_types: Mapping[str, str], nullable: Collection[str]) -> str:
    column = field.name.lower()
    if column not in spark_types:
        hint = suggestion(column, tuple(spark_types))
        raise SchemaError(f"the schema asks for the column {field.name}, which is not there; {hint}")
    said, wanted = field.dataType.simpleString(), spark_types[column]
    if said != wanted:
        raise SchemaError(f"the schema asks for {field.name} as {said}; it is {wanted}")
    if column in nullable and not field.nullable:
        raise SchemaError(
            f"the schema says that {field.name} is NOT NULL, but it may be null; leave NOT NULL out"
        )
    return column
