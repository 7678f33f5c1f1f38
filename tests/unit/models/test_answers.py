"""Models of answers and advisories: they accept everything recorded from nats-server, and refuse wrong texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from tests.conformance.harness.recordings import RECORDED

from pyjs.models import ErrorResponse, PubAck, StreamInfo, parse_advisory, parse_answer
from pyjs.models.advisories import ADVISORIES
from pyjs.models.answers import ANSWERS, API_PREFIX, ConsumerResponse, StreamInfoResponse

DEAD_LETTER_REFUSED = "io.nats.jetstream.advisory.v1.dead_letter_refused"  # only of this server
# a recording has such a mask in place of a time, an id and so on
MASK = re.compile(r"^<[a-z]+( [a-z]+)*( \d+)?>$")
GROUPS = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())


def documents(group: str) -> Iterator[dict[str, Any]]:
    """Yield every JSON document with a type in the recordings of a group."""
    for path in sorted((RECORDED / group).glob("*.json")):
        for frames in json.loads(path.read_text("utf-8"))["recording"]["connections"].values():
            for frame in frames:
                payload = frame.get("payload")
                if isinstance(payload, dict) and isinstance(payload.get("json"), dict):
                    yield payload["json"]


def faults(model: Any, document: dict[str, Any]) -> list[Any]:
    """Return the faults that `model` finds, including unknown fields, except those of masked values."""
    try:
        model.model_validate(document, extra="forbid")
    except ValidationError as error:
        return [fault for fault in error.errors() if not MASK.match(str(fault["input"]))]
    return []


@pytest.mark.parametrize("group", GROUPS)
def test_every_field_that_nats_server_answered_with_has_a_place(group: str) -> None:
    for document in documents(group):
        kind = str(document.get("type", ""))
        if kind in ADVISORIES:
            response = document.get("response")
            given = document | ({"response": json.dumps(response)} if isinstance(response, dict) else {})
            assert faults(ADVISORIES[kind], given) == [], document
        elif kind.startswith(API_PREFIX) and "error" not in document:
            assert faults(ANSWERS[kind.removeprefix(API_PREFIX)], document) == [], document
        elif kind.startswith(API_PREFIX):
            assert faults(ErrorResponse, {"type": kind, "error": document["error"]}) == [], document
        elif {"stream", "seq"} <= document.keys() and "type" not in document:
            assert faults(PubAck, document) == [], document


def test_the_recordings_have_answers_of_nearly_every_type() -> None:
    seen = {str(document.get("type", "")) for group in GROUPS for document in documents(group)}
    assert {f"{API_PREFIX}{name}" for name in ANSWERS} - seen == set()
    of_clusters = {kind for kind in ADVISORIES if kind.endswith(("_elected", "_lost", "_removed"))}
    # tests/unit/jetstream/member/test_announcing.py; tests/unit/jetstream/dead_letters/test_sender.py
    assert set(ADVISORIES) - seen == of_clusters | {DEAD_LETTER_REFUSED}


def test_an_answer_becomes_the_model_of_its_type() -> None:
    # given
    state = {"messages": 1, "bytes": 2, "first_seq": 1, "first_ts": "2026-01-02T03:04:05.123456789Z"}
    state |= {"last_seq": 1, "last_ts": "0001-01-01T00:00:00Z", "consumer_count": 0}
    answer = {"type": f"{API_PREFIX}stream_info_response", "total": 0, "offset": 0, "limit": 0}
    answer |= {
        "config": {"name": "S", "of_the_future": 1},
        "created": "2026-01-02T03:04:05Z",
        "state": state,
        "new": 1,
    }
    # when
    made = parse_answer(json.dumps(answer))
    # then
    assert isinstance(made, StreamInfoResponse)
    assert isinstance(made, StreamInfo)
    assert (made.config.name, made.config.max_msgs, made.state.first_ts.microsecond) == ("S", -1, 123456)


def test_a_refused_request_is_an_error_response() -> None:
    error = {"code": 404, "err_code": 10059, "description": "stream not found"}
    made = parse_answer(json.dumps({"type": f"{API_PREFIX}stream_info_response", "error": error}))
    assert isinstance(made, ErrorResponse)
    assert (made.error.code, made.error.err_code) == (404, 10059)


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"type":"x"}', b'{"type":5}', b"nothing"])
def test_what_is_no_answer_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # for the last text, the error of the JSON decoder
        parse_answer(data)
    with pytest.raises(ValueError):
        parse_advisory(data)


def test_an_answer_without_what_it_must_have_names_the_field() -> None:
    with pytest.raises(ValidationError, match="num_pending"):
        ConsumerResponse.parse(json.dumps({"type": f"{API_PREFIX}consumer_info_response"}))
