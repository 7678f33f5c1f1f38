"""Decodes the body of a pull request into its fields, or finds the status that refuses the request.

This module knows nothing of queues and messages. In contrast to other requests, a pull request is decoded leniently:
unknown fields are ignored, and a body that is neither JSON nor a number requests one message.

Source: ADR-13; behaviour and texts probed on nats-server 2.15.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyjs.base.bounds import INT64, taken
from pyjs.base.gotext import duration_text
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.consumer_requests import NEXT_REQUEST
from pyjs.jetstream.config.json_strict import JsonFault, decode

if TYPE_CHECKING:
    from typing import Any

PRIORITY_LAST = 2**31 - 1  # priority of a request whose body is not JSON
_INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
_PLAIN = {"batch": int, "expires": int, "no_wait": bool, "max_bytes": int, "idle_heartbeat": int}
_PLAIN |= {"group": str, "min_pending": int, "min_ack_pending": int, "id": str, "priority": int}


class RefusedPull(Exception):
    """Raised if a pull request is refused. The exception's message is the status after NATS/1.0."""


@dataclass(slots=True)
class PullRequest:
    """The fields of a pull request. A number is 0 if it is not set, except for `batch` and `priority`."""

    batch: int = 1
    expires_ns: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    heartbeat_ns: int = 0
    group: str | None = None  # None: the body was not JSON, so groups are not checked
    min_pending: int = 0
    min_ack_pending: int = 0
    pin_id: str = ""
    priority: int = PRIORITY_LAST


def read_pull(body: bytes) -> PullRequest:
    """Decode the body of a pull request.

    Raises:
        RefusedPull: the JSON or a value in it is invalid (status 400).
    """
    body = body.strip()
    if not body:
        return PullRequest()
    if body[:1] != b"{":
        return PullRequest(taken("batch", int(body))) if _INTEGER.fullmatch(body) else PullRequest()
    fields = _fields(body)
    request = PullRequest(
        taken("batch", fields.get("batch", 0)),
        fields.get("expires", 0),
        fields.get("no_wait", False),
        fields.get("max_bytes", 0),
        fields.get("idle_heartbeat", 0),
        fields.get("group", ""),
        fields.get("min_pending", 0),
        fields.get("min_ack_pending", 0),
        fields.get("id", ""),
        fields.get("priority", 0),
    )
    if request.heartbeat_ns > 0 and request.heartbeat_ns * 2 > request.expires_ns:
        raise RefusedPull("400 Bad Request - heartbeat value too large")
    request.expires_ns = taken("expires", request.expires_ns)
    if request.heartbeat_ns:
        request.heartbeat_ns = taken("pull_heartbeat", request.heartbeat_ns)
    return request


def _fields(body: bytes) -> dict[str, Any]:
    """Return the fields of a JSON body. Raises RefusedPull."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if isinstance(fields, dict) and all(_is_plain(name, value) for name, value in fields.items()):
        return fields
    try:
        return decode(body, NEXT_REQUEST, strict=False)
    except JsonFault as fault:
        raise RefusedPull(f"400 Bad Request - {fault.lenient_text()}") from None


def _is_plain(name: str, value: object) -> bool:
    kind = _PLAIN.get(name)
    return type(value) is kind and (type(value) is not int or INT64.low <= value <= INT64.high)


def check_pull(request: PullRequest, config: ConsumerConfig) -> None:
    """Refuse a request that exceeds the limits of the consumer or violates its priority policy.

    Raises:
        RefusedPull: the request exceeds a limit, which the status names (409), or it does not fit the priority
            policy (400).
    """
    if 0 < config.max_batch < request.batch:
        raise RefusedPull(f"409 Exceeded MaxRequestBatch of {config.max_batch}")
    if 0 < config.max_expires_ns < request.expires_ns:
        limit = duration_text(config.max_expires_ns)
        raise RefusedPull(f"409 Exceeded MaxRequestExpires of {limit}")
    if 0 < config.max_bytes < request.max_bytes:
        raise RefusedPull(f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    if request.group is not None:
        _check_priorities(request, config)


def _check_priorities(request: PullRequest, config: ConsumerConfig) -> None:
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != "overflow":
        raise RefusedPull("400 Bad Request - Not a Overflow Priority consumer")
    if request.pin_id and policy != "pinned_client":
        raise RefusedPull("400 Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= 9:
        raise RefusedPull("400 Bad Request - Priority must be between 0 and 9")
    if policy == "none":
        return
    if not request.group:
        raise RefusedPull("400 Bad Request - Priority Group missing")
    if request.group not in config.priority_groups:
        raise RefusedPull("400 Bad Request - Invalid Priority Group")
