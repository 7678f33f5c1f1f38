"""Columns of the rows to write: their types and meaning, and which columns are refused.

    data     binary or string   the payload; null is refused, since it is not an empty payload
    subject  string             null is refused; ignored if the option subject is given
    headers  map<string,array<string>> or map<string,string>; null and empty maps are not headers
    msg_id   string             null: the sink creates an id

Any other column is refused, and the error names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyjs_spark.decode.schema import COLUMNS, SparkField
from pyjs_spark.errors import SchemaError, suggestion
from pyjs_spark.options.writing import FROM_HEADERS, SinkOptions

TYPES = {
    "data": ("binary", "string"),
    "subject": ("string",),
    "headers": ("map<string,array<string>>", "map<string,string>"),
    "msg_id": ("string",),
}


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The index of each column in a row; -1 if the column is missing."""

    data: int
    subject: int
    headers: int
    msg_id: int


def plan_rows(fields: Sequence[SparkField], options: SinkOptions) -> RowPlan:
    """Return the indexes of the columns to write.

    Raises:
        SchemaError: a column is missing, has another type, or cannot be written.
    """
    id_name = (options.msg_id_column or "msg_id").lower()
    places: dict[str, int] = {}
    for at, field in enumerate(fields):
        name = "msg_id" if field.name.lower() == id_name else field.name.lower()
        if name == "msg_id" and field.name.lower() != id_name:
            raise SchemaError(
                f"the column {field.name} is not written: option msgIdColumn={options.msg_id_column} names that of "
                "the ids; leave one of them out"
            )
        if name not in TYPES:
            raise SchemaError(_stranger(field.name, list(TYPES)))
        if name in places:
            raise SchemaError(f"the column {field.name} is there twice; keep one")
        said = field.dataType.simpleString()
        if said not in TYPES[name]:
            wanted = " or ".join(TYPES[name])
            raise SchemaError(f"the column {field.name} is {said}; a sink takes {wanted}: cast it")
        places[name] = at
    if "data" not in places:
        raise SchemaError(
            "there is no column data, the payload; name it with .withColumnRenamed(..., 'data')"
        )
    if "subject" not in places and not options.subject:
        raise SchemaError("there is neither a column subject nor an option subject; give one")
    if options.msg_id_column and "msg_id" not in places:
        raise SchemaError(f"option msgIdColumn={options.msg_id_column}: there is no such column")
    if options.msg_id == FROM_HEADERS and "msg_id" in places:
        raise SchemaError("option msgId=header, and there is a column msg_id too; leave one out")
    subject = -1 if options.subject else places["subject"]
    return RowPlan(places["data"], subject, places.get("headers", -1), places.get("msg_id", -1))


def _stranger(name: str, known: list[str]) -> str:
    if name.lower() in COLUMNS:
        return (
            f"the column {name} is not written: a stream gives it itself; leave it out with .drop('{name}'), "
            "or put it into headers"
        )
    hint = suggestion(name, known, f"a sink takes {', '.join(known)}")
    return (
        f"the column {name} is not written; {hint} Put what else a message shall carry into headers or data"
    )
