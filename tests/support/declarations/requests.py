"""The tables of docs/options.md and the JSON schemas of requests, from the options of streams and consumers."""

from __future__ import annotations

import json
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyjs.base.bounds import NUMBERS
from pyjs.jetstream.config.bucket import KeyValueConfig, ObjectStoreConfig
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.consumer_requests import (
    CREATE_REQUEST,
    NEXT_REQUEST,
    OFFSET_REQUEST,
    PAUSE_REQUEST,
    RESET_REQUEST,
    UNPIN_REQUEST,
)
from pyjs.jetstream.config.declared import Option, options_of
from pyjs.jetstream.config.json_strict import Kind, Struct
from pyjs.jetstream.config.stream import (
    ConsumerLimits,
    ExternalStream,
    Placement,
    RepublishConfig,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from pyjs.jetstream.config.stream_requests import (
    DELETE_MSG_REQUEST,
    GET_MSG_REQUEST,
    INFO_REQUEST,
    LIST_REQUEST,
    NAMES_REQUEST,
    PURGE_REQUEST,
    RESTORE_REQUEST,
    SNAPSHOT_REQUEST,
    STREAM_REQUEST,
)

from .pages import DOCS, filled

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TABLES: dict[str, type[DataclassInstance]] = {
    each.__name__: each
    for each in (
        *(StreamConfig, StreamSource, ExternalStream, SubjectTransformConfig, RepublishConfig, Placement),
        *(ConsumerLimits, ConsumerConfig, KeyValueConfig, ObjectStoreConfig),
    )
}
SCHEMAS = {
    "stream_create_request": STREAM_REQUEST,
    "stream_update_request": STREAM_REQUEST,
    "stream_info_request": INFO_REQUEST,
    "stream_names_request": NAMES_REQUEST,
    "stream_list_request": LIST_REQUEST,
    "stream_purge_request": PURGE_REQUEST,
    "stream_msg_get_request": GET_MSG_REQUEST,
    "stream_msg_delete_request": DELETE_MSG_REQUEST,
    "stream_snapshot_request": SNAPSHOT_REQUEST,
    "stream_restore_request": RESTORE_REQUEST,
    "consumer_create_request": CREATE_REQUEST,
    "consumer_names_request": OFFSET_REQUEST,
    "consumer_list_request": OFFSET_REQUEST,
    "consumer_pause_request": PAUSE_REQUEST,
    "consumer_reset_request": RESET_REQUEST,
    "consumer_unpin_request": UNPIN_REQUEST,
    "consumer_getnext_request": NEXT_REQUEST,
}
TYPES = {
    "string": "text",
    "bool": "true or false",
    "time.Duration": "nanoseconds",
    "time.Time": "RFC 3339 time",
}


def made() -> dict[Path, str]:
    """Return the text of every generated file."""
    page = DOCS / "options.md"
    files = {page: filled(page, {name: table(of) for name, of in TABLES.items()})}
    for name, struct in SCHEMAS.items():
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema_of(struct)}
        files[DOCS / "schemas" / f"{name}.json"] = json.dumps(schema, indent=2) + "\n"
    return files


def table(of: type[DataclassInstance]) -> str:
    """Return the options of a dataclass as a table of Markdown."""
    rows = ["| Option | Type | Default | Level | Update | |", "|---|---|---|---|---|---|"]
    return "\n".join(rows + [row(each) for each in options_of(of)]) + "\n"


def row(option: Option) -> str:
    cells = (f"`{option.name}`", type_text(option.kind), default_text(option), str(option.level or ""))
    return f"| {' | '.join(cells)} | {'yes' if option.updatable else 'no'} | {option.doc} |"


def default_text(option: Option) -> str:
    value = option.zero if option.default is MISSING else option.default
    return f"`{json.dumps(value)}`" if isinstance(value, int | str) and value != "" else ""


def type_text(kind: Kind) -> str:
    if kind.name == "enum":
        return ", ".join(f"`{word}`" if word else '`""`' for word in kind.words)
    if kind.name == "struct":
        return "object"
    if kind.item is not None:
        return f"{kind.name} of {type_text(kind.item)}"
    return TYPES.get(kind.name, kind.name)


def schema_of(struct: Struct) -> dict[str, Any]:
    """Return the schema of a request; `additionalProperties` are refused, as the server does."""
    docs = {each.name: each.doc for each in options_of(struct.of)} if struct.of else {}
    fields = {name: schema_of_kind(kind) for name, kind in struct.fields.items()}
    for name, doc in docs.items():
        fields[name]["description"] = doc
    return {"type": "object", "properties": fields, "additionalProperties": False}


def schema_of_kind(kind: Kind) -> dict[str, Any]:
    if kind.name in NUMBERS:
        low, high = NUMBERS[kind.name]
        unit = {"description": "In nanoseconds."} if kind.name == "time.Duration" else {}
        return {"type": "integer", "minimum": low, "maximum": high, **unit}
    if kind.name == "enum":
        return {"enum": list(kind.words)}
    if kind.name == "time.Time":
        return {"type": "string", "format": "date-time"}
    if kind.name == "list" and kind.item is not None:
        return {"type": "array", "items": schema_of_kind(kind.item)}
    if kind.name == "map" and kind.item is not None:
        return {"type": "object", "additionalProperties": schema_of_kind(kind.item)}
    if kind.struct is not None:
        return schema_of(kind.struct)
    return {"type": {"string": "string", "bool": "boolean"}[kind.name]}
