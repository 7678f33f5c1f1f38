"""Requests, answers, advisories and metrics of the scenarios conform to the JSON schemas of nats-io/jsm.go.

`make schemas` fetches the schemas and plays every scenario against this server. A normal test run takes one scenario
of each area, and only if the schemas are already on this machine: it fetches nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.player import play
from tests.conformance.harness.process import our_command
from tests.conformance.harness.schemas import PREFIX, Document, documents_of, find_schemas, load_schemas
from tests.conformance.harness.script import Script, load

from pyjs.jetstream.api.table import ENDPOINTS

REQUIRED = "schemas" in os.environ.get("PYJS_REQUIRE", "").split(",")
SCENARIOS = Path(__file__).parent / "scenarios"
FEW = (
    "ack/advisories",
    "advisories/ack_metrics",
    "advisories/api_audit",
    "advisories/consumers",
    "advisories/pinned_and_unpinned",
    "advisories/streams",
    "consumer/info_list_names_delete",
    "consumer/last_per_subject",
    "consumer/unpin",
    "pull/bodies",
    "stream/account_info",
    "stream/create_every_field",
    "stream/info",
    "stream/list_and_names",
    "stream/message_delete",
    "stream/message_get",
    "stream/purge",
    "stream/update_each_field",
)
# The scenarios need not contain answers of these types.
NOT_YET = {"stream_snapshot_response", "stream_restore_response", "consumer_reset_response"}
EVENTS = {
    *("advisory.v1.api_audit", "advisory.v1.stream_action", "advisory.v1.consumer_action"),
    *("advisory.v1.consumer_pause", "advisory.v1.max_deliver", "advisory.v1.nak", "advisory.v1.terminated"),
    *("advisory.v1.consumer_group_pinned", "advisory.v1.consumer_group_unpinned", "metric.v1.consumer_ack"),
    "advisory.v1.stream_batch_abandoned",
}
# The requests of these scenarios violate their schema, yet both servers accept them; see docs/schemas.md.
ODD_REQUESTS = frozenset(
    {
        *("bounds/consumer_numbers", "bounds/pulls"),
        *("consumer/create_ephemeral", "consumer/create_normalises", "consumer/metadata"),
        *("consumer/unusual_but_accepted", "pull/numbers_out_of_range", "republish/config"),
        *("mirror/config", "mirror/direct_inherited", "mirror/external"),
        *("stream/create_normalises", "stream/create_same_again_differs", "stream/create_subject_forms"),
        *("stream/info_details", "stream/pedantic", "stream/pedantic_corrections"),
        *("stream/list_and_names", "stream/placement", "stream/strict_json_off", "stream/strict_json_texts"),
        *("stream/update_consumer_limits", "transform/config", "triggers/consumer_numbers_out_of_range"),
        *("consumer/pause_requests", "limits/zero_and_negative", "mirror/consumer_config_errors"),
        *("pull/request_id_and_group_on_plain", "stream/info_paging", "stream/names_offsets"),
        *("stream/update_max_consumers", "ttl/config_refused"),
    }
)
ECHOES = frozenset(
    {"mirror/external"}
)  # its answer repeats a name of an origin that the schema does not allow
# Values that nats-server sends (tests/conformance/recorded) but the schema does not list: type, field, value.
UNLISTED = {(f"{PREFIX}advisory.v1.stream_batch_abandoned", "reason", "unsupported")}


TOLD = 50  # number of scenarios between two lines of progress


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """The schemas by type. If they are missing, skip once, or fail once if they are required."""
    directory = find_schemas(fetch=REQUIRED)
    if directory is None:
        reason = "no schemas of nats-io/jsm.go: `go mod download` failed, and PYJS_SCHEMAS names no checkout"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    return load_schemas(directory)


def chosen() -> list[Script]:
    names = sorted(SCENARIOS.rglob("*.txt")) if REQUIRED else [SCENARIOS / f"{name}.txt" for name in FEW]
    return [load(path, SCENARIOS) for path in names]


def documents(script: Script) -> list[Document]:
    with tempfile.TemporaryDirectory(prefix="schemas-") as directory:
        recording = play(script, our_command(), Path(directory))
    found = documents_of(script, recording)
    left_out: tuple[str, ...] = ("_request", "_update_response") if script.name in ODD_REQUESTS else ()
    left_out += ("_create_response",) if script.name in ECHOES else ()
    return [each for each in found if not each.type.endswith(left_out)]


def faults(validators: dict[str, Any], document: Document) -> Iterator[str]:
    if document.type not in validators:
        yield f"{document.type} has no schema"
        return
    for error in validators[document.type].iter_errors(document.content):
        place = ".".join(str(part) for part in error.absolute_path)
        if (document.type, place, str(error.instance)) in UNLISTED:
            continue
        causes = "; ".join(cause.message for cause in error.context)
        yield f"{document.type} {place}: {error.message} {causes}"[:1000]


@pytest.mark.timeout(0 if REQUIRED else 900)  # make schemas reports its progress itself
def test_every_document_of_the_scenarios_is_as_its_schema_says(
    schemas: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    jsonschema = pytest.importorskip("jsonschema")
    validators = {name: jsonschema.Draft7Validator(schema) for name, schema in schemas.items()}
    scripts = chosen()
    # when
    found, wrong = [], []
    with ThreadPoolExecutor(4 if REQUIRED else 2) as pool:
        for script, each in zip(scripts, pool.map(documents, scripts), strict=True):
            found.append((script, each))
            new = [f"{script.name}: {fault}" for doc in each for fault in faults(validators, doc)]
            wrong += new
            if REQUIRED and (new or len(found) % TOLD == 0):
                with capsys.disabled():
                    print(*new, f"{len(found)} of {len(scripts)} scenarios", sep="\n", flush=True)
    counts = Counter(doc.type.removeprefix(PREFIX) for _, each in found for doc in each)
    # then
    assert wrong == []
    if REQUIRED:
        answers = {f"api.v1.{e.response}" for e in ENDPOINTS if e.response not in NOT_YET}
        assert {name for name in answers | EVENTS if PREFIX + name in schemas} <= set(counts)
        with capsys.disabled():
            print(f"\n{sum(counts.values())} documents of {len(counts)} types")
            print("\n".join(f"{count:6} {name}" for name, count in sorted(counts.items())))


def test_a_document_that_breaks_its_schema_is_found(schemas: dict[str, Any]) -> None:
    # given
    jsonschema = pytest.importorskip("jsonschema")
    validators = {name: jsonschema.Draft7Validator(schema) for name, schema in schemas.items()}
    kind = PREFIX + "api.v1.stream_purge_response"
    # when
    good = Document(kind, {"type": kind, "success": True, "purged": 3})
    refused = Document(kind, {"type": kind, "error": {"code": 404, "err_code": 10059}, "purged": 0})
    # then
    assert list(faults(validators, good)) == []
    assert list(faults(validators, refused)) == []
    assert list(faults(validators, Document(kind, {"type": kind, "success": True, "purged": "3"})))
    assert list(faults(validators, Document(kind, {"type": kind, "success": True})))
    assert list(faults(validators, Document(PREFIX + "api.v1.nonsense", {})))
