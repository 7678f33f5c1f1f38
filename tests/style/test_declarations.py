"""The tables and schemas in docs/ match the declared options and models; `make declarations` writes them."""

from __future__ import annotations

import json

import pytest
from tests.support.declarations.files import made
from tests.support.declarations.pages import DOCS
from tests.support.declarations.requests import SCHEMAS, schema_of

from pyjs.jetstream.config.json_strict import JsonFault, decode


def test_tables_and_schemas_are_fresh() -> None:
    files = made()
    assert [path.name for path, text in files.items() if not path.exists() or path.read_text() != text] == []
    assert set((DOCS / "schemas").rglob("*.*")) == {
        path for path in files if DOCS / "schemas" in path.parents
    }


@pytest.mark.parametrize(
    ("body", "is_right"),
    [
        ({"name": "S", "max_age": 1, "sources": [{"name": "O"}], "metadata": {"a": "b"}}, True),
        ({"max_age": "1s"}, False),
        ({"retention": "sometimes"}, False),
        ({"sources": [{"title": "O"}]}, False),
        ({"max_msg_size": 1 << 31}, False),
        ({"first_seq": -1}, False),
    ],
)
def test_schema_and_reader_agree(body: dict[str, object], is_right: bool) -> None:
    # given
    jsonschema = pytest.importorskip("jsonschema")
    struct = SCHEMAS["stream_create_request"]
    # when
    try:
        decode(json.dumps(body).encode(), struct)
        is_read = True
    except JsonFault:
        is_read = False
    # then
    assert jsonschema.Draft7Validator(schema_of(struct)).is_valid(body) == is_read == is_right
