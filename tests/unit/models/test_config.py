"""Configurations of streams and consumers as models: accepted values, and the resulting requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from pyjs.jetstream.config.consumer_requests import read_create
from pyjs.jetstream.config.stream_requests import read_stream
from pyjs.models import ConsumerConfig, ConsumerCreateRequest, StreamConfig, StreamSource
from pyjs.models.base import faults


def test_only_what_was_set_is_sent() -> None:
    assert json.loads(StreamConfig(name="S", subjects=["s.>"]).to_json()) == {
        "name": "S",
        "subjects": ["s.>"],
    }


def test_what_was_set_to_its_default_is_sent() -> None:
    assert json.loads(StreamConfig(name="S", max_msgs=-1).to_json()) == {"name": "S", "max_msgs": -1}


@pytest.mark.parametrize("given", [timedelta(minutes=1, seconds=30), "1m30s", 90_000_000_000])
def test_a_duration_is_a_timedelta_a_text_or_nanoseconds(given: object) -> None:
    config = StreamConfig.model_validate({"name": "S", "max_age": given})
    assert json.loads(config.to_json())["max_age"] == 90_000_000_000


def test_faults_have_the_path_and_the_expectation() -> None:
    text = '{"max_msgs": "5", "mirror": {"name": 1}, "storage": "tape"}'
    assert faults(StreamConfig, text) == [
        (("max_msgs",), "should be a valid integer"),
        (("storage",), "should be 'memory' or 'file'"),
        (("mirror", "name"), "should be a valid string"),
    ]
    assert faults(StreamConfig, '{"max_age": "5x"}')[0][0] == ("max_age",)
    assert faults(StreamConfig, '{"max_age": 5000000}') == []


def test_the_longest_timedelta_is_refused_and_not_rounded() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 9223372036854775807"):
        StreamConfig(name="S", max_age=timedelta.max)  # type: ignore[arg-type]


def test_a_time_is_sent_with_its_zone() -> None:
    start = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    config = ConsumerConfig(durable_name="d", deliver_policy="by_start_time", opt_start_time=start)
    assert json.loads(config.to_json())["opt_start_time"] == "2026-01-02T03:04:05.600000Z"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        ConsumerConfig(opt_start_time=datetime(2026, 1, 2))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"nam": "S"}, "nam\n  Extra inputs are not permitted"),
        ({"retention": "sometimes"}, "Input should be 'limits', 'interest' or 'workqueue'"),
        ({"max_msg_size": 1 << 31}, "less than or equal to 2147483647"),
        ({"max_msgs": 1 << 63}, "less than or equal to 9223372036854775807"),
        ({"first_seq": -1}, "greater than or equal to 0"),
        ({"max_age": "soon"}, "max_age"),
        ({"sources": [{"name": "O", "filter": "x"}]}, "sources.0.filter"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StreamConfig.model_validate(given)
    assert told in str(refused.value)


def test_a_value_that_is_changed_later_is_checked_too() -> None:
    config = StreamConfig(name="S")
    with pytest.raises(ValidationError):
        config.max_msgs = 1 << 63
    config.max_msgs = 5
    assert json.loads(config.to_json()) == {"name": "S", "max_msgs": 5}


def test_the_server_reads_what_a_model_sends() -> None:
    # given
    source = StreamSource(name="O", filter_subject="a")
    config = StreamConfig(name="S", sources=[source], retention="interest", metadata={"a": "b"})
    # when
    read = read_stream(config.to_json(), strict=True).config
    # then
    assert (read.name, read.retention, read.metadata) == ("S", "interest", {"a": "b"})
    assert read.sources[0].filter_subject == "a"


def test_the_server_reads_a_request_for_a_consumer() -> None:
    # given
    config = ConsumerConfig(durable_name="d", ack_policy="explicit", backoff=[1, 2])
    # when
    read = read_create(ConsumerCreateRequest(stream_name="S", config=config).to_json(), strict=True)
    # then
    assert (read.stream_name, read.config.durable_name, read.config.backoff_ns) == ("S", "d", (1, 2))
