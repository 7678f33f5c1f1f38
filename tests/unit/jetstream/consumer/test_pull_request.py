"""Bodies of pull requests."""

from __future__ import annotations

from typing import Any

import pytest

from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.consumer.delivery.pull_request import PullRequest, RefusedPull, check_pull, read_pull

NS = 1_000_000_000


def asked(batch: int, expires_ns: int = 0, group: str = "", **more: Any) -> PullRequest:
    """Return the request decoded from JSON."""
    return PullRequest(batch, expires_ns, group=group, **{"priority": 0, **more})


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"", PullRequest(1)),
        (b"  \r\n", PullRequest(1)),
        (b"25", PullRequest(25)),
        (b"-3", PullRequest(-3)),
        (b"many", PullRequest(1)),
        (b"{}", asked(0)),
        (b'{"batch":7,"no_wait":true}', asked(7, no_wait=True)),
        (
            b'{"batch":7,"expires":5000000000,"idle_heartbeat":1000000000}',
            asked(7, 5 * NS, heartbeat_ns=NS),
        ),
        (b'{"BATCH":2,"unknown":[1]}', asked(2)),
        (b'{"batch":1,"max_bytes":9,"group":"a"}', asked(1, max_bytes=9, group="a")),
    ],
)
def test_bodies(body: bytes, request_: PullRequest) -> None:
    assert read_pull(body) == request_


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"batch":"x"}', "json: cannot unmarshal string into Go struct field .batch of type int"),
        (b"{x", "invalid character 'x' looking for beginning of object key string"),
        (b'{"batch":1', "unexpected end of JSON input"),
        (b'{"idle_heartbeat":600000000,"expires":1000000000}', "heartbeat value too large"),
    ],
)
def test_wrong_bodies_are_refused(body: bytes, text: str) -> None:
    with pytest.raises(RefusedPull) as refused:
        read_pull(body)
    assert str(refused.value) == f"400 Bad Request - {text}"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (PullRequest(6), "409 Exceeded MaxRequestBatch of 5"),
        (PullRequest(1, expires_ns=61 * NS), "409 Exceeded MaxRequestExpires of 1m0s"),
        (PullRequest(1, max_bytes=1001), "409 Exceeded MaxRequestMaxBytes of 1000"),
    ],
)
def test_limits_of_the_consumer_are_named(request_: PullRequest, text: str) -> None:
    # given
    config = ConsumerConfig(max_batch=5, max_expires_ns=60 * NS, max_bytes=1000)
    # when, then
    with pytest.raises(RefusedPull) as refused:
        check_pull(request_, config)
    assert str(refused.value) == text


def test_a_request_within_the_limits_passes() -> None:
    check_pull(
        PullRequest(5, 60 * NS, max_bytes=1000),
        ConsumerConfig(max_batch=5, max_expires_ns=60 * NS, max_bytes=1000),
    )


@pytest.mark.parametrize(
    ("request_", "policy", "text"),
    [
        (asked(1, min_pending=1), "none", "Not a Overflow Priority consumer"),
        (asked(1, min_ack_pending=1), "prioritized", "Not a Overflow Priority consumer"),
        (asked(1, pin_id="x"), "overflow", "Not a Pinned Client Priority consumer"),
        (asked(1, priority=10), "none", "Priority must be between 0 and 9"),
        (asked(1, priority=-1), "prioritized", "Priority must be between 0 and 9"),
        (asked(1), "overflow", "Priority Group missing"),
        (asked(1, group="B"), "pinned_client", "Invalid Priority Group"),
    ],
)
def test_what_a_priority_policy_does_not_take_is_refused(
    request_: PullRequest, policy: str, text: str
) -> None:
    with pytest.raises(RefusedPull) as refused:
        check_pull(request_, ConsumerConfig(priority_policy=policy, priority_groups=("A",)))
    assert str(refused.value) == f"400 Bad Request - {text}"


def test_a_body_without_json_names_no_group_and_passes() -> None:
    check_pull(read_pull(b"5"), ConsumerConfig(priority_policy="overflow", priority_groups=("A",)))
