"""Advisories and metrics of JetStream as models.

Source: nats.docs "JetStream advisories"; the recordings of nats-server in tests/conformance/recorded.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from pyjs.models.answers import Peer
from pyjs.models.base import Answer, Duration, Time

ADVISORY_PREFIX = "io.nats.jetstream.advisory.v1."
METRIC_PREFIX = "io.nats.jetstream.metric.v1."


class Advisory(Answer):
    """The base of all advisories and metrics."""

    type: str
    id: str
    timestamp: Time
    domain: str = ""


class ClientInfo(Answer):
    """The client that sent an audited request."""

    start: Time
    host: str = ""
    id: str | int = ""
    acc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: Duration = 0
    server: str = ""
    kind: str = ""
    client_type: str = ""


class ApiAudit(Advisory):
    """The advisory about a request to the API, with the request and its answer."""

    server: str
    client: ClientInfo
    subject: str
    request: str = ""
    response: str


class StreamAction(Advisory):
    """The advisory that a stream was created, changed or deleted."""

    stream: str
    action: str = Field(description="`create`, `modify` or `delete`.")


class BatchAbandoned(Advisory):
    """The advisory that an atomic batch was abandoned."""

    stream: str
    batch: str
    reason: str = Field(description="`timeout`, `large`, `incomplete` or `unsupported`.")


class ConsumerAdvisory(Advisory):
    """The base of the advisories about a consumer."""

    stream: str
    consumer: str


class ConsumerAction(ConsumerAdvisory):
    """The advisory that a consumer was created or deleted."""

    action: str = Field(description="`create` or `delete`.")


class ConsumerPause(ConsumerAdvisory):
    """The advisory that a consumer was paused or resumed."""

    paused: bool
    pause_until: Time | None = None


class MaxDeliver(ConsumerAdvisory):
    """The advisory that a message reached the maximum number of deliveries."""

    stream_seq: int
    deliveries: int


class Nak(ConsumerAdvisory):
    """The advisory that a client rejected a delivery with -NAK."""

    consumer_seq: int
    stream_seq: int
    deliveries: int


class Terminated(Nak):
    """The advisory that a client ended the redelivery of a message with +TERM."""

    reason: str = ""


class DeadLetterRefused(ConsumerAdvisory):
    """The advisory that the stream for dead letters refused a message; only this server publishes it."""

    stream_seq: int
    reason: str


class GroupPinned(ConsumerAdvisory):
    """The advisory that a client was pinned in a priority group."""

    account: str = ""
    group: str
    pinned_id: str


class GroupUnpinned(ConsumerAdvisory):
    """The advisory that the pinned client of a priority group lost its pin."""

    account: str = ""
    group: str
    reason: str = Field(description="`admin` or `timeout`.")


class StreamQuorumLost(Advisory):
    """The advisory that a stream has lost its quorum, and accepts no messages."""

    account: str = Field(default="", description="Only for the system account.")
    stream: str
    replicas: list[Peer]


class StreamLeader(StreamQuorumLost):
    """The advisory that a stream has a new leader."""

    leader: str


class ConsumerQuorumLost(StreamQuorumLost):
    """The advisory that a consumer has lost its quorum, because its stream has lost the quorum."""

    consumer: str


class ConsumerLeader(StreamLeader):
    """The advisory that a consumer has a new leader."""

    consumer: str


class DomainLeader(Advisory):
    """The advisory that the metadata group of a cluster has a new leader."""

    leader: str = Field(description="A digest of its name.")
    replicas: list[Peer]
    cluster: str


class ServerRemoved(Advisory):
    """The advisory that a server was removed from a cluster."""

    server: str
    server_id: str = Field(description="A digest of its name, as `peer` elsewhere.")
    cluster: str


class ConsumerAck(Nak):
    """The metric about an acknowledgement, with the time from the delivery to the acknowledgement."""

    ack_time: Duration


ADVISORIES: dict[str, type[Advisory]] = {
    f"{ADVISORY_PREFIX}api_audit": ApiAudit,
    f"{ADVISORY_PREFIX}stream_action": StreamAction,
    f"{ADVISORY_PREFIX}stream_batch_abandoned": BatchAbandoned,
    f"{ADVISORY_PREFIX}consumer_action": ConsumerAction,
    f"{ADVISORY_PREFIX}consumer_pause": ConsumerPause,
    f"{ADVISORY_PREFIX}max_deliver": MaxDeliver,
    f"{ADVISORY_PREFIX}nak": Nak,
    f"{ADVISORY_PREFIX}terminated": Terminated,
    f"{ADVISORY_PREFIX}dead_letter_refused": DeadLetterRefused,
    f"{ADVISORY_PREFIX}consumer_group_pinned": GroupPinned,
    f"{ADVISORY_PREFIX}consumer_group_unpinned": GroupUnpinned,
    f"{ADVISORY_PREFIX}stream_leader_elected": StreamLeader,
    f"{ADVISORY_PREFIX}stream_quorum_lost": StreamQuorumLost,
    f"{ADVISORY_PREFIX}consumer_leader_elected": ConsumerLeader,
    f"{ADVISORY_PREFIX}consumer_quorum_lost": ConsumerQuorumLost,
    f"{ADVISORY_PREFIX}domain_leader_elected": DomainLeader,
    f"{ADVISORY_PREFIX}server_removed": ServerRemoved,
    f"{METRIC_PREFIX}consumer_ack": ConsumerAck,
}


def parse_advisory(data: bytes | str) -> Advisory:
    """Return the advisory or metric in `data`, as a model of its type.

    Raises:
        ValueError: `data` is not an advisory, or has an unknown type.
        pydantic.ValidationError: a field is invalid.
    """
    given: Any = json.loads(data)
    kind = given.get("type") if isinstance(given, dict) else None
    model = ADVISORIES.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ValueError(f"no advisory of JetStream: its type is {kind!r}")
    return model.parse(data)
