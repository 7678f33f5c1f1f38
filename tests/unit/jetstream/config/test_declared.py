"""Declared options: defaults, answers, the stored form, and the rules of updates for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.declared import as_json, changed, from_json, from_meta, options_of, to_meta
from pyjs.jetstream.config.stream import (
    ConsumerLimits,
    SourceConsumer,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from pyjs.jetstream.rules import consumer as consumer_rules


def test_every_option_has_a_sentence_about_it() -> None:
    options = [*options_of(StreamConfig), *options_of(ConsumerConfig)]
    assert [each.name for each in options if not each.doc.endswith(".")] == []


def test_a_default_starts_as_the_zero_of_its_kind_unless_stated() -> None:
    # when
    config = StreamConfig()
    # then
    assert (config.max_msgs, config.num_replicas, config.storage, config.retention) == (
        -1,
        1,
        "file",
        "limits",
    )
    assert (config.subjects, config.mirror, config.metadata) == ((), None, {})
    assert config.consumer_limits == ConsumerLimits()


def test_options_that_an_update_may_not_change_are_those_of_the_rules() -> None:
    # given
    fixed = {attribute for attribute, _ in consumer_rules._FIXED} | {"max_waiting", "durable_name", "name"}
    # then
    assert {each.attribute for each in options_of(ConsumerConfig) if not each.updatable} == fixed


def test_a_changed_copy_differs_in_the_given_options_only() -> None:
    # given
    config = ConsumerConfig(durable_name="d", metadata={"a": "b"})
    # when
    copy = changed(config, name="d", max_deliver=5)
    # then
    assert copy == ConsumerConfig(durable_name="d", metadata={"a": "b"}, name="d", max_deliver=5)
    assert (config.name, config.max_deliver) == (ConsumerConfig().name, ConsumerConfig().max_deliver)
    with pytest.raises(AttributeError):
        changed(config, no_such_option=1)


def test_times_are_shown_as_text_and_the_start_of_1970_is_one() -> None:
    # when
    source = StreamSource(name="O", opt_start_time_ns=0)
    # then
    assert as_json(source) == {"name": "O", "opt_start_time": "1970-01-01T00:00:00Z"}
    assert from_json(StreamSource, as_json(source)) == source


def test_metadata_is_shown_in_the_order_of_its_names() -> None:
    shown = as_json(ConsumerConfig(metadata={"b": "2", "a": "1"}))
    assert list(shown["metadata"]) == ["a", "b"]


def test_the_api_level_of_a_stream_is_that_of_its_newest_option() -> None:
    assert StreamConfig().with_required_level().metadata == {"_nats.req.level": "0"}
    assert StreamConfig(allow_msg_ttl=True).with_required_level().metadata == {"_nats.req.level": "1"}


def test_the_stored_form_keeps_the_consumer_of_a_source() -> None:
    # given
    transforms = (SubjectTransformConfig("a", "b"),)
    source = StreamSource(name="O", subject_transforms=transforms, consumer=SourceConsumer("c"))
    # when
    meta = to_meta(StreamConfig(name="S", sources=(source,)))
    # then
    assert meta["sources"][0]["subject_transforms"] == [{"src": "a", "dest": "b"}]
    stored = from_meta(StreamConfig, json.loads(json.dumps(meta)))
    assert stored.sources == (source,)


@pytest.mark.parametrize("time_ns", [0, 1, 253_402_300_799_000_000_000, -62_135_596_800_000_000_001])
def test_times_beyond_a_stored_number_survive(time_ns: int) -> None:
    config = StreamConfig(name="S", mirror=StreamSource(name="O", opt_start_time_ns=time_ns))
    assert from_meta(StreamConfig, to_meta(config)) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 1),
        ("retention", None),
        ("max_msgs", "1"),
        ("max_msgs", True),
        ("max_msgs", 1 << 63),
        ("first_seq", -1),
        ("no_ack", 1),
        ("subjects", "a"),
        ("subjects", ["a", 1]),
        ("mirror", "O"),
        ("mirror", {"name": 1}),
        ("mirror", {"opt_start_time_ns": 1 << 80}),
        ("consumer_limits", None),
        ("metadata", {"a": 1}),
        ("metadata", []),
        ("description", "\ud800"),
    ],
)
def test_stored_values_of_another_kind_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError):
        from_meta(StreamConfig, {**to_meta(StreamConfig(name="S")), name: value})
