"""Stream configurations: errors, their texts, and default values."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pyjs.config.options import AccountJetStreamOptions, JetStreamLimits, JetStreamOptions
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.declared import as_json, from_meta, to_meta
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.rules import stream as stream_rules

MS = 1_000_000
S = 1_000 * MS
OPTIONS = JetStreamOptions()
NO_LIMITS = AccountJetStreamOptions()


def check(
    limits: AccountJetStreamOptions = NO_LIMITS, options: JetStreamOptions = OPTIONS, **fields: Any
) -> StreamConfig:
    request = stream_requests.read_stream(orjson.dumps({"name": "S", **fields}), strict=True)
    return stream_rules.check(request.config, options, limits, request.pedantic)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": ""}, "stream name is required and can not contain '.', '*', '>', '\\', '/'"),
        ({"name": "a b"}, "stream name is required and can not contain '.', '*', '>', '\\', '/'"),
        ({"name": "n" * 256}, "stream name is too long, maximum allowed is 255"),
        ({"description": "d" * 4097}, "stream description is too long, maximum allowed is 4096"),
        ({"metadata": {"a": "b" * 131072}}, "stream metadata exceeds maximum size of 131072 bytes"),
        ({"num_replicas": 6}, "maximum replicas is 5"),
        ({"max_age": -1}, "max age can not be negative"),
        ({"max_age": 50 * MS}, "max age needs to be >= 100ms"),
        ({"duplicate_window": -1}, "duplicates window can not be negative"),
        ({"duplicate_window": 1}, "duplicates window needs to be >= 100ms"),
        ({"max_age": 1 * S, "duplicate_window": 2 * S}, "duplicates window can not be larger then max age"),
        ({"deny_purge": True, "allow_rollup_hdrs": True}, "roll-ups require the purge permission"),
        ({"discard_new_per_subject": True}, "discard new per subject requires discard new policy to be set"),
        (
            {"discard_new_per_subject": True, "discard": "new"},
            "discard new per subject requires max msgs per subject > 0",
        ),
        ({"subjects": ["a..b"]}, "invalid subject"),
        ({"subjects": ["a", "a"]}, 'subject "a" overlaps with "a"'),
        ({"subjects": ["a.>", "a.b"]}, 'subject "a.>" overlaps with "a.b"'),
        ({"subjects": [">"]}, "capturing all subjects requires no-ack to be true"),
        (
            {"subjects": [">"], "no_ack": True, "num_replicas": 3},
            "capturing all subjects requires replicas of 1",
        ),
        ({"subjects": ["$JS.API.>"]}, "subjects that overlap with jetstream api require no-ack to be true"),
        ({"subjects": ["$SYS.>"]}, "subjects that overlap with system api require no-ack to be true"),
        ({"placement": {"preferred": "x"}}, "preferred server not permitted in placement"),
        ({"sources": [{"name": "S"}]}, "detected cycle"),
        ({"subject_delete_marker_ttl": -1}, "subject delete marker TTL must not be negative"),
        ({"subject_delete_marker_ttl": 1}, "subject delete marker TTL must be at least 1 second"),
        (
            {"subject_delete_marker_ttl": S, "pedantic": True},
            "subject delete marker cannot be set if message TTLs are disabled",
        ),
        (
            {"subject_delete_marker_ttl": S, "pedantic": True, "allow_msg_ttl": True},
            "subject delete marker cannot be set if roll-ups are disabled",
        ),
        (
            {"persist_mode": "async", "storage": "memory"},
            "async persist mode is only supported on file storage",
        ),
        (
            {"persist_mode": "async", "num_replicas": 3},
            "async persist mode is not supported on replicated streams",
        ),
        (
            {"persist_mode": "async", "allow_atomic": True},
            "async persist mode is not supported with atomic batch publish",
        ),
        (
            {"allow_msg_schedules": True, "discard": "new"},
            "message scheduling cannot use discard new",
        ),
        (
            {"allow_msg_schedules": True, "pedantic": True},
            "message scheduling cannot be set if roll-ups are disabled",
        ),
        (
            {"allow_msg_schedules": True, "allow_msg_counter": True},
            "counter stream cannot use message schedules",
        ),
    ],
)
def test_configurations_that_cannot_be(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        check(**fields)
    assert (refusal.value.code, refusal.value.err_code, refusal.value.description) == (500, 10052, text)


@pytest.mark.parametrize("subject", ["$JS.EVENT.>", "$SYS.ACCOUNT.>", "$KV.b.>", "_INBOX.>"])
def test_subjects_that_may_be_captured(subject: str) -> None:
    assert check(subjects=[subject]).subjects == (subject,)


def test_no_ack_may_capture_everything() -> None:
    assert check(subjects=[">"], no_ack=True).subjects == (">",)
    assert check(subjects=["$JS.>"], no_ack=True).no_ack


def test_defaults_are_those_of_the_peer() -> None:
    config = check().with_required_level().with_server_metadata()
    assert orjson.dumps(as_json(config)) == (
        b'{"name":"S","subjects":["S"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,'
        b'"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file",'
        b'"num_replicas":1,"duplicate_window":120000000000,"compression":"none","allow_direct":false,'
        b'"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,'
        b'"consumer_limits":{},"allow_msg_ttl":false,'
        b'"metadata":{"_nats.level":"5","_nats.req.level":"0","_nats.ver":"2.15.1"}}'
    )


def test_limits_below_one_mean_no_limit() -> None:
    config = check(max_msgs=0, max_bytes=-5, max_msg_size=-9, max_consumers=-2, max_msgs_per_subject=0)
    assert (config.max_msgs, config.max_bytes, config.max_msg_size) == (-1, -1, -1)
    assert (config.max_consumers, config.max_msgs_per_subject) == (-1, -1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"max_msgs": -5}, "pedantic mode: max_msgs must be set to -1"),
        ({"max_consumers": -2}, "pedantic mode: max_consumers must be set to -1"),
        ({"max_age": 1 * S}, "pedantic mode: duplicate window cannot be bigger than max age"),
    ],
)
def test_pedantic_requests_are_not_corrected(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        check(pedantic=True, **fields)
    assert (refusal.value.err_code, refusal.value.description) == (10157, text)


def test_the_window_follows_max_age_and_the_servers_limit() -> None:
    limited = JetStreamOptions(limits=JetStreamLimits(duplicate_window_ns=10 * S))
    assert check(max_age=1 * S).duplicate_window_ns == 1 * S
    assert check(options=limited).duplicate_window_ns == 10 * S
    with pytest.raises(ApiError, match="duplicates window can not be larger then server limit of 10s"):
        check(options=limited, duplicate_window=11 * S)
    with pytest.raises(
        ApiError, match="pedantic mode: duplicate window limits are higher than current limits"
    ):
        check(options=limited, pedantic=True)


def test_negative_replicas() -> None:
    with pytest.raises(ApiError, match="replicas count cannot be negative"):
        check(num_replicas=-1)


def test_accounts_may_ask_for_max_bytes() -> None:
    required = AccountJetStreamOptions(max_bytes_required=True, mem_max_stream_bytes=100)
    with pytest.raises(ApiError, match="10113"):
        check(limits=required)
    with pytest.raises(ApiError, match="10122"):
        check(limits=required, storage="memory", max_bytes=101)
    assert check(limits=required, max_bytes=101).max_bytes == 101


def test_an_empty_placement_is_none() -> None:
    assert check(placement={}).placement is None
    shown = as_json(check(placement={"cluster": "c", "tags": ["a"]}))
    assert shown["placement"] == {"cluster": "c", "tags": ["a"]}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({}, {"storage": "memory"}, "can not change storage type"),
        ({}, {"retention": "workqueue"}, "can not change retention policy to/from workqueue"),
        ({"sealed": True}, {}, "can not unseal a sealed stream"),
        ({"deny_delete": True}, {}, "can not cancel deny message deletes"),
        ({"deny_purge": True}, {}, "can not cancel deny purge"),
        ({"allow_msg_ttl": True}, {}, "message TTL status can not be disabled"),
    ],
)
def test_updates_that_cannot_be(old: dict[str, Any], new: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        stream_rules.check_update(check(**old), check(**new))


def test_sealing_closes_everything() -> None:
    config = stream_rules.check_update(check(), check(sealed=True, max_age=1 * S, allow_rollup_hdrs=True))
    assert (config.max_age_ns, config.discard) == (0, "new")
    assert (config.deny_delete, config.deny_purge, config.allow_rollup_hdrs) == (True, True, False)


def test_a_configuration_survives_its_stored_form() -> None:
    config = check(
        subjects=["a", "b"],
        placement={"cluster": "c", "tags": ["t"]},
        consumer_limits={"max_ack_pending": 5},
        metadata={"k": "v"},
        no_ack=True,
        first_seq=7,
        description="d",
        discard="new",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
    )
    assert from_meta(StreamConfig, to_meta(config)) == config
    with pytest.raises(ValueError, match="a newer server wrote it"):
        from_meta(StreamConfig, {**to_meta(config), "from_the_future": 1})
