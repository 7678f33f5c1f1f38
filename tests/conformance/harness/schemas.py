"""JSON schemas of nats-io/jsm.go, and the documents of a recording that they describe.

The schemas are fetched for a run and are not kept in the tree: `go mod download` puts them into the module cache of
Go, or PYJS_SCHEMAS names a checkout. The schema of a response, advisory or metric is named by its member `type`, that
of a request by its subject. Only requests that the server accepted are checked: scenarios send invalid ones on
purpose.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .player import Recording
from .script import Script, unescape

MODULE = "github.com/nats-io/jsm.go@v0.5.1"
PREFIX = "io.nats.jetstream."
WITH_INBOX = ("req", "js", "pull", "until", "acksync", "acknext")
# endpoint -> schema of its request; the longest matching endpoint applies
REQUESTS = {
    "STREAM.CREATE": "stream_create_request",
    "STREAM.UPDATE": "stream_update_request",
    "STREAM.NAMES": "stream_names_request",
    "STREAM.LIST": "stream_list_request",
    "STREAM.INFO": "stream_info_request",
    "STREAM.PURGE": "stream_purge_request",
    "STREAM.MSG.GET": "stream_msg_get_request",
    "STREAM.MSG.DELETE": "stream_msg_delete_request",
    "CONSUMER.CREATE": "consumer_create_request",
    "CONSUMER.DURABLE.CREATE": "consumer_create_request",
    "CONSUMER.NAMES": "consumer_names_request",
    "CONSUMER.LIST": "consumer_list_request",
    "CONSUMER.PAUSE": "consumer_pause_request",
    "CONSUMER.UNPIN": "consumer_unpin_request",
    "CONSUMER.MSG.NEXT": "consumer_getnext_request",
}


class Document(NamedTuple):
    """A JSON document and the type that it has or should have."""

    type: str
    content: Any


def find_schemas(fetch: bool) -> Path | None:
    """Return the directory of the schemas; `fetch`: download them if they are not on this machine."""
    given = os.environ.get("PYJS_SCHEMAS")
    root = Path(given) if given else _from_module_cache(fetch)
    if root is None or not (root / "schemas/jetstream").is_dir():
        return None
    return root / "schemas/jetstream"


def _from_module_cache(fetch: bool) -> Path | None:
    environment = dict(os.environ) if fetch else {**os.environ, "GOPROXY": "off"}
    try:
        run = subprocess.run(
            ["go", "mod", "download", "-json", MODULE],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
        )
        found = json.loads(run.stdout).get("Dir")
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Path(found) if found else None


def load_schemas(directory: Path) -> dict[str, Any]:
    """Return the schemas by type, extended to allow the known deviations of nats-server."""
    schemas = {}
    for path in directory.rglob("*.json"):
        kind, version, name = path.relative_to(directory).with_suffix("").parts
        schema = json.loads(path.read_text("utf-8"))
        if name.endswith("_response") and "oneOf" in schema:
            # the error response of a list also contains the fields of a page, so that two alternatives match
            schema["anyOf"] = schema.pop("oneOf")
        if name.endswith("_request"):
            # the schemas require complete configurations, but the server fills in defaults
            _drop_required(schema)
        schemas[f"{PREFIX}{kind}.{version}.{name}"] = schema
    _allow_deviations(schemas)
    return schemas


def _drop_required(schema: Any) -> None:
    if isinstance(schema, dict):
        if isinstance(schema.get("required"), list):
            del schema["required"]
        choices = schema.get("oneOf")
        # each choice is a policy and its required fields: without `required`, all choices match
        if choices is not None:
            schema["anyOf"] = schema.pop("oneOf")
        for each in schema.values():
            _drop_required(each)
    elif isinstance(schema, list):
        for each in schema:
            _drop_required(each)


def _allow_deviations(schemas: dict[str, Any]) -> None:
    """Allow the six places where nats-server itself deviates from the schemas."""
    advisory = PREFIX + "advisory.v1."
    for name in ("nak", "terminated"):
        schemas[advisory + name]["properties"]["consumer_seq"]["type"] = ["string", "integer"]
    for name in ("consumer_group_pinned", "consumer_group_unpinned"):
        schemas[advisory + name]["required"].remove("server")
        schemas[advisory + name]["properties"].setdefault("server", {"type": "string"})
    snapshot = schemas[advisory + "snapshot_create"]
    snapshot["required"] = ["type", "id", "timestamp", "stream"]
    snapshot["additionalProperties"] = True
    schemas[PREFIX + "api.v1.consumer_unpin_response"]["properties"]["error"] = {"type": "object"}


def documents_of(script: Script, recording: Recording) -> Iterator[Document]:
    """Yield every accepted request, and every answer, advisory and metric, of one run."""
    for frames in recording["connections"].values():
        for frame in frames:
            content = frame.get("payload", {}).get("json")
            if isinstance(content, dict):
                yield from _typed(content, str(frame.get("subject", "")))
    yield from _requests(script, recording)


def _typed(content: dict[str, Any], subject: str) -> Iterator[Document]:
    if str(content.get("type", "")).startswith(PREFIX):
        yield Document(content["type"], content)
        if content["type"].endswith("api_audit"):
            yield from _typed(json.loads(content["response"]), "")
    elif subject.startswith("_INBOX.") and {"stream", "seq"} <= set(content):
        yield Document(PREFIX + "api.v1.pub_ack_response", content)


def _requests(script: Script, recording: Recording) -> Iterator[Document]:
    opened: dict[str, int] = {}
    sent: dict[str, int] = {}
    for step in script.steps:
        if step.verb in ("open", "connect"):
            opened[step.conn] = opened.get(step.conn, 0) + 1
            sent[step.conn] = 0
        if step.verb not in WITH_INBOX:
            continue
        sent[step.conn] += 1
        key = step.conn if opened[step.conn] == 1 else f"{step.conn}#{opened[step.conn]}"
        inbox = f"_INBOX.{step.conn}.{sent[step.conn]}"
        answers = [each for each in recording["connections"][key] if each.get("subject") == inbox]
        request = _request(step.verb, step.text)
        if request is not None and not any(map(_is_refusal, answers)):
            yield request


def _is_refusal(frame: dict[str, Any]) -> bool:
    content = frame.get("payload", {}).get("json")
    status = frame.get("headers", {}).get("status")
    return status in ("400", "503") or (isinstance(content, dict) and "error" in content)


def _request(verb: str, text: str) -> Document | None:
    """Return the request that a statement sent to the API; None if it sent none, or one without a body."""
    if verb == "until":
        text = text.rpartition(" -> ")[0]
    if verb in ("js", "until"):
        endpoint, _, body = text.partition(" ")
    elif verb == "pull":
        endpoint, body = "CONSUMER.MSG.NEXT", [*text.split(" ", 2), ""][2]
    else:
        head, _, body = text.partition(" :")
        subject = shlex.split(head)[0].split(".API.", 1) if verb == "req" else [""]
        endpoint, body = subject[1] if len(subject) == 2 else "", body.strip()
    names = [name for name in REQUESTS if (endpoint + ".").startswith(name + ".")]
    if not names or not body.startswith("{"):
        return None
    try:
        content = json.loads(unescape(body))
    except (ValueError, RecursionError):
        return None  # the server accepts some texts that are invalid JSON or too deeply nested for Python
    return Document(f"{PREFIX}api.v1.{REQUESTS[max(names, key=len)]}", content)
