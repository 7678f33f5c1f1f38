"""JSON schemas of answers, advisories, monitoring pages and the configuration, from pyjs.models.

An answer has the schema of its model or that of an error. Fields may be missing unless they are required, and a newer
server may send additional ones. A list may be null if its model says so; any other None is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from pyjs.models import (
    Accountz,
    Accstatz,
    Connz,
    Declaredz,
    ErrorResponse,
    Healthz,
    Jsz,
    PubAck,
    ServerOptions,
    Subsz,
    Varz,
)
from pyjs.models.advisories import ADVISORIES
from pyjs.models.answers import ANSWERS, API_PREFIX

from .pages import DOCS

PAGES: tuple[type[BaseModel], ...] = (Varz, Connz, Subsz, Jsz, Accountz, Accstatz, Healthz, Declaredz)
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DEFINED = "#/$defs/"


class Short(GenerateJsonSchema):
    """Schemas without titles that repeat the name of a field, and without null for a value that is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        inner = self.generate_inner(schema["schema"])
        return {"anyOf": [inner, {"type": "null"}]} if self.may_be_null(inner) else inner

    def may_be_null(self, inner: Mapping[str, Any]) -> bool:
        return inner.get("type") == "array"

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        return (
            made if made.get("default", "") is not None else {k: v for k, v in made.items() if k != "default"}
        )


class WithoutNull(Short):
    """Schemas of configuration files, which have no null."""

    def may_be_null(self, inner: Mapping[str, Any]) -> bool:
        return False


def made() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {
        DOCS / "schemas" / f"{name}.json": json.dumps(made, indent=2) + "\n"
        for name, made in schemas().items()
    }


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by name."""
    out = {name: _answer(API_PREFIX + name, model) for name, model in ANSWERS.items()}
    out["pub_ack_response"] = _open(_schema(PubAck))
    for kind, model in ADVISORIES.items():
        out["advisories/" + kind.rpartition(".")[2]] = _typed(_open(_schema(model)), kind)
    out |= {f"monitoring/{page.__name__.lower()}": _open(_schema(page)) for page in PAGES}
    out["server_options"] = _schema(ServerOptions, WithoutNull)
    return {name: DIALECT | schema for name, schema in out.items()}


def _schema(model: type[BaseModel], generator: type[GenerateJsonSchema] = Short) -> dict[str, Any]:
    return model.model_json_schema(mode="serialization", schema_generator=generator)


def _answer(kind: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an answer: the result of the request, or an error."""
    done, refused = _schema(model), _schema(ErrorResponse)
    definitions = {**done.pop("$defs", {}), **refused.pop("$defs", {})}
    definitions |= {each["title"]: _typed(each, kind) for each in (done, refused)}
    choices = [{"$ref": DEFINED + each["title"]} for each in (done, refused)]
    return {"title": kind, "anyOf": choices, "$defs": _open(definitions)}


def _typed(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the schema with the only `type` value that its documents have."""
    schema["properties"]["type"] = {"const": kind}
    return schema


def _open(schema: Any) -> Any:
    """Return the schema without its refusals of more fields: those are for requests."""
    if isinstance(schema, dict):
        return {
            key: _open(each) for key, each in schema.items() if (key, each) != ("additionalProperties", False)
        }
    return [_open(each) for each in schema] if isinstance(schema, list) else schema
