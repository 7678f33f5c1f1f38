"""Payloads that are JSON, and match a JSON schema. Knows nothing of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyjs_spark import strict_json
from pyjs_spark.errors import OptionError, SparkMissing


def checker(schema: str | None) -> Callable[[bytes], str | None]:
    """Return a function from a payload to its fault, None if it has none; `schema` is a text that was checked."""
    validator = None
    if schema is not None:
        from jsonschema import validators

        said = json.loads(schema)
        validator = validators.validator_for(said)(said)

    def fault(data: bytes) -> str | None:
        try:
            value = strict_json.loads(data)
        except ValueError as wrong:  # UnicodeDecodeError is one
            return f"no JSON: {wrong}"
        first = next(iter(validator.iter_errors(value)), None) if validator is not None else None
        return None if first is None else f"{first.json_path}: {first.message}"

    return fault


def schema_text(path: str) -> str:
    """Return the JSON schema in a file, checked. Raises OptionError, SparkMissing."""
    try:
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
    except ImportError:
        raise SparkMissing("--schema needs the package jsonschema; pip install jsonschema") from None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        schema = json.loads(text)
        validators.validator_for(schema).check_schema(schema)
    except OSError as error:
        raise OptionError(f"--schema={path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise OptionError(f"--schema={path}: this is no JSON: {error}") from None
    except SchemaError as error:
        raise OptionError(f"--schema={path}: this is no JSON schema: {error.message}") from None
    return text
