"""The JSON schemas in docs/schemas: the answers of nats-server in the recorded scenarios conform to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import pytest
from tests.support.declarations.answers import schemas
from tests.unit.models.test_answers import GROUPS, MASK, documents

from pyjs.models import StreamRestoreRequest, StreamSnapshotRequest
from pyjs.models.advisories import ADVISORIES
from pyjs.models.answers import API_PREFIX

VALIDATORS = {name: jsonschema.Draft202012Validator(schema) for name, schema in schemas().items()}


def faults(name: str, document: dict[str, Any]) -> list[str]:
    """Return the faults of a document, except those of masked values."""
    return [each.message for each in causes(VALIDATORS[name].iter_errors(document)) if not is_masked(each)]


def causes(errors: Iterable[jsonschema.ValidationError]) -> Iterator[jsonschema.ValidationError]:
    """Yield the faults; of a choice, those of its first branch, which is the answer without an error."""
    for error in errors:
        first = [each for each in error.context or () if each.schema_path[0] == 0]
        yield from causes(first) if first else [error]


def is_masked(error: jsonschema.ValidationError) -> bool:
    return bool(MASK.match(str(error.instance)))


def name_of(document: dict[str, Any]) -> str | None:
    kind = str(document.get("type", ""))
    if kind in ADVISORIES:
        return "advisories/" + kind.rpartition(".")[2]
    if kind.startswith(API_PREFIX):
        return kind.removeprefix(API_PREFIX)
    return "pub_ack_response" if {"stream", "seq"} <= document.keys() and not kind else None


@pytest.mark.parametrize("group", GROUPS)
def test_what_nats_server_answered_is_as_the_schema_says(group: str) -> None:
    for document in documents(group):
        if name := name_of(document):
            response = document.get("response")
            given = document | ({"response": json.dumps(response)} if isinstance(response, dict) else {})
            assert faults(name, given) == [], document


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("stream_purge_response", {"type": f"{API_PREFIX}stream_purge_response", "success": True}),
        (
            "stream_purge_response",
            {"type": f"{API_PREFIX}stream_info_response", "success": True, "purged": 1},
        ),
        ("stream_purge_response", {"type": f"{API_PREFIX}stream_purge_response", "error": {"err_code": 1}}),
        ("pub_ack_response", {"stream": "S", "seq": "1"}),
        ("server_options", {"ports": 4222}),
        ("server_options", {"port": None}),
        ("server_options", {"jetstream": {"store": "/data"}}),
    ],
)
def test_a_wrong_document_is_found(name: str, document: dict[str, Any]) -> None:
    assert not VALIDATORS[name].is_valid(document)


def test_a_configuration_in_json_is_as_the_schema_says() -> None:
    accounts = {"A": {"users": [{"user": "u", "password": "p"}], "jetstream": True}}
    config = {"port": 4222, "jetstream": {"store_dir": "/data", "max_file": "10GB"}, "accounts": accounts}
    assert VALIDATORS["server_options"].is_valid(config)


def test_requests_of_snapshots_have_what_was_set() -> None:
    # given
    snapshot = StreamSnapshotRequest(deliver_subject="chunks", no_consumers=True)
    restore = StreamRestoreRequest.model_validate({"config": {"name": "S"}, "state": {"messages": 1}})
    # then
    assert json.loads(snapshot.to_json()) == {"deliver_subject": "chunks", "no_consumers": True}
    assert json.loads(restore.to_json()) == {"config": {"name": "S"}, "state": {"messages": 1}}
