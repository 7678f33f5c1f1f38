"""Columns: their types, the schemas that users may request, and agreement with Arrow and Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pyjs_spark.decode import schema
from pyjs_spark.errors import SchemaError


@dataclass
class Type:
    """Stands in for a pyspark DataType."""

    ddl: str

    def simpleString(self) -> str:
        return self.ddl


@dataclass
class Field:
    """Stands in for a pyspark StructField."""

    name: str
    dataType: Type
    nullable: bool = True


def fields(*said: str) -> list[Field]:
    return [Field(name, Type(ddl)) for name, ddl in (each.split(" ") for each in said)]


def test_the_default_schema_has_everything_but_ts_ns() -> None:
    assert schema.spark_ddl("map") == (
        "stream string, seq bigint, ts timestamp, subject string, headers map<string,array<string>>, "
        "data binary, size int"
    )


@pytest.mark.parametrize(("headers", "said"), [("raw", "headers binary"), ("false", "subject string, data")])
def test_headers_follow_the_option(headers: str, said: str) -> None:
    assert said in schema.spark_ddl(headers)


def test_a_schema_of_the_user_is_a_projection_in_its_order_and_case() -> None:
    wanted = schema.project(
        [*fields("SEQ bigint", "ts_ns bigint"), Field("data", Type("binary"), False)], "map"
    )

    assert wanted.columns == ("seq", "ts_ns", "data")
    assert wanted.names == ("SEQ", "ts_ns", "data")
    assert wanted.nullable == (True, True, False)


@pytest.mark.parametrize(
    ("field", "headers", "said"),
    [
        ("subjet string", "map", "the column subjet, which is not there; did you mean subject?"),
        ("zzz string", "map", "there are stream, seq"),
        ("seq int", "map", "asks for seq as int; it is bigint"),
        ("headers map<string,array<string>>", "raw", "it is binary"),
        ("headers binary", "false", "set it to map or raw"),
    ],
)
def test_a_column_that_is_not_there_or_has_another_type_is_refused(
    field: str, headers: str, said: str
) -> None:
    with pytest.raises(SchemaError, match=said.replace("?", r"\?")):
        schema.project(fields(field), headers)


def test_a_column_that_may_be_null_is_refused_as_one_that_never_is() -> None:
    with pytest.raises(
        SchemaError, match="says that Headers is NOT NULL, but it may be null; leave NOT NULL"
    ):
        schema.project([Field("Headers", Type("map<string,array<string>>"), nullable=False)], "map")


def test_a_column_said_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="column seq twice"):
        schema.project(fields("seq bigint", "Seq bigint"), "map")


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(SchemaError, match="no column"):
        schema.project([], "map")


@pytest.mark.parametrize("headers", ["map", "raw"])
def test_arrow_and_spark_derive_the_same_schema(headers: str) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    types = pytest.importorskip("pyspark.sql.types")
    kinds = {
        "string": types.StringType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "map<string,array<string>>": types.MapType(types.StringType(), types.ArrayType(types.StringType())),
    }
    struct = types.StructType()
    for name in schema.COLUMNS:
        struct = struct.add(name, kinds[schema.spark_type(name, headers)], name != "seq")

    derived = pandas_types.to_arrow_schema(struct, timezone="UTC")

    projection = schema.project(struct.fields, headers)
    assert derived.equals(schema.pa_schema(projection, headers))
    assert schema.arrow_schema(("ts",), headers).field("ts") == derived.field("ts")
