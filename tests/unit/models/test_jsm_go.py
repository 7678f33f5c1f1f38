"""The JSON schemas of docs/schemas compared with those of jsm.go: equal fields, except for a known list.

jsm_go.json has the field names of jsm.go's schemas (schema_source/jetstream of nats-io/jsm.go, commit caea3c5): a
block per object, with the names of plain fields in one string under "".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

THEIRS: dict[str, Any] = json.loads(Path(__file__).with_name("jsm_go.json").read_text())
SCHEMAS = Path("docs/schemas")  # up to date: tests/style/test_declarations.py
PAGE = Path("docs/schemas.md")

STREAM_INFO = {"alternates", "alternates.cluster", "alternates.domain", "alternates.name"}
ERROR = {"code", "description", "err_code"}
LIMITS = {
    *("max_ack_pending", "max_bytes_required", "max_consumers", "max_memory", "max_storage", "max_streams"),
    *("memory_max_stream_bytes", "storage_max_stream_bytes"),
}
TIER = {"consumers", "memory", "reserved_memory", "reserved_storage", "storage", "streams", "limits"}

# By schema: fields that only jsm.go's schema has, and fields that only ours has.
DIFFERENCES: dict[str, tuple[set[str], set[str]]] = {
    "account_info_response": (
        set(),
        {f"tiers.*.{name}" for name in TIER} | {f"tiers.*.limits.{name}" for name in LIMITS},
    ),
    "consumer_list_response": (set(), {"missing", "offline"}),
    "consumer_names_request": ({"subject"}, set()),
    "consumer_unpin_response": (
        {"error.error"} | {f"error.error.{name}" for name in ERROR},
        {f"error.{name}" for name in ERROR} | {"success"},
    ),
    "stream_create_response": (STREAM_INFO, {"mirror.seq", "sources.seq"}),
    "stream_info_response": (STREAM_INFO, {"mirror.seq", "sources.seq"}),
    "stream_list_response": (
        {f"streams.{name}" for name in STREAM_INFO},
        {"streams.mirror.seq", "streams.sources.seq"},
    ),
    "stream_msg_get_request": (set(), {"no_hdr"}),
    "stream_names_response": ({"consumers"}, {"streams"}),
    "stream_restore_request": ({"state.lost", "state.lost.bytes", "state.lost.msgs"}, set()),
    "stream_update_request": (set(), {"pedantic"}),
    "stream_update_response": (STREAM_INFO, {"did_create", "mirror.seq", "sources.seq"}),
    "advisories/api_audit": (
        {
            *("client.alts", "client.client_id", "client.cluster", "client.issuer_key", "client.jwt"),
            *("client.name_tag", "client.nonce", "client.stop", "client.svc", "client.tags"),
        },
        {"domain"},
    ),
    "advisories/consumer_action": (set(), {"domain"}),
    "advisories/max_deliver": (set(), {"domain"}),
    "advisories/stream_action": ({"template"}, {"domain"}),
    "advisories/stream_batch_abandoned": ({"account"}, set()),
}


def their_fields(block: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, inner in block.items():
        if name:
            yield path + name
            yield from their_fields(inner, f"{path}{name}.")
        else:
            yield from (path + leaf for leaf in inner.split())


def our_fields(schema: Any, whole: dict[str, Any], path: str = "") -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        target: Any = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from our_fields(target, whole, path)
    for each in (*schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from our_fields(each, whole, path)
    for name, each in schema.get("properties", {}).items():
        yield path + name
        yield from our_fields(each, whole, f"{path}{name}.")
    yield from our_fields(schema.get("items"), whole, path)
    yield from our_fields(schema.get("additionalProperties"), whole, f"{path}*.")


@pytest.mark.parametrize("name", THEIRS)
def test_a_schema_has_the_fields_of_jsm_go_but_for_the_known_differences(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    theirs, ours = set(their_fields(THEIRS[name])), set(our_fields(schema, schema))
    assert (theirs - ours, ours - theirs) == DIFFERENCES.get(name, (set(), set()))


def test_the_page_names_each_schema_that_differs() -> None:
    page = PAGE.read_text()
    assert [name for name in DIFFERENCES if f"`{name}`" not in page] == []
