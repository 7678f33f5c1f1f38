"""Bodies of pull requests."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer_config import ConsumerConfig
from pyjs.jetstream.pull_request import PullRequest, RefusedPull, check_pull, read_pull

NS = 1_000_000_000


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"", PullRequest(1)),
        (b"  \r\n", PullRequest(1)),
        (b"25", PullRequest(25)),
        (b"-3", PullRequest(-3)),
        (b"many", PullRequest(1)),
        (b"{}", PullRequest(0)),
        (b'{"batch":7,"no_wait":true}', PullRequest(7, no_wait=True)),
        (
            b'{"batch":7,"expires":5000000000,"idle_heartbeat":1000000000}',
            PullRequest(7, 5 * NS, heartbeat_ns=NS),
        ),
        (b'{"BATCH":2,"unknown":[1]}', PullRequest(2)),
        (b'{"batch":1,"max_bytes":9,"group":"a"}', PullRequest(1, max_bytes=9)),
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
        (b'{"min_pending":1}', "Not a Overflow Priority consumer"),
        (b'{"min_ack_pending":1}', "Not a Overflow Priority consumer"),
        (b'{"id":"x"}', "Not a Pinned Client Priority consumer"),
        (b'{"priority":10}', "Priority must be between 0 and 9"),
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
