"""The configuration of a consumer: plain values, and their JSON in the field order of nats-server.

Knows nothing of what is allowed (jetstream/rules/consumer.py) and of how a request is read
(jetstream/config/consumer_requests.py). The JSON leaves out what is unset, exactly as the peer does, and is also
the form kept on disk.

Source: nats.docs "Consumer configuration"; field order and omissions probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.gotext import moment_text
from pyjs.jetstream.config.json_strict import parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SERVER_VERSION_KEY = "_nats.ver"
SERVER_LEVEL_KEY = "_nats.level"
REQUIRED_LEVEL_KEY = "_nats.req.level"


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """What a consumer was asked to be. Durations are ns, 0 means unset, times are ns since the epoch."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time_ns: int | None = None
    ack_policy: str = "none"
    ack_wait_ns: int = 0
    max_deliver: int = 0
    backoff_ns: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires_ns: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat_ns: int = 0
    inactive_threshold_ns: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    pause_until_ns: int | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: str = "none"
    priority_timeout_ns: int = 0

    @property
    def durable(self) -> bool:
        """Whether the consumer outlives its users until it is deleted (or idle for inactive_threshold)."""
        return bool(self.durable_name)

    @property
    def push(self) -> bool:
        """Whether messages go to a deliver subject instead of to pull requests."""
        return bool(self.deliver_subject)

    @property
    def filters(self) -> tuple[str, ...]:
        """The subject filters; empty: every message."""
        return (self.filter_subject,) if self.filter_subject else self.filter_subjects

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of responses and of the disk, without the dynamic metadata."""
        out: dict[str, Any] = {}
        for name, always, value in zip(_NAMES, _ALWAYS, _values(self), strict=True):
            if value or always:
                out[name] = list(value) if type(value) is tuple else value
        for name, time_ns in zip(_TIMES, _times(self), strict=True):
            if time_ns is None:
                del out[name]
            else:
                out[name] = moment_text(time_ns)
        if out["priority_policy"] == "none":
            del out["priority_policy"]
        return out


# Wire name, attribute, and whether it is shown when unset (a time: not even then), in wire order.
_FIELDS: tuple[tuple[str, str, bool], ...] = (
    ("durable_name", "durable_name", False),
    ("name", "name", False),
    ("description", "description", False),
    ("deliver_policy", "deliver_policy", True),
    ("opt_start_seq", "opt_start_seq", False),
    ("opt_start_time", "opt_start_time_ns", True),
    ("ack_policy", "ack_policy", True),
    ("ack_wait", "ack_wait_ns", False),
    ("max_deliver", "max_deliver", False),
    ("backoff", "backoff_ns", False),
    ("filter_subject", "filter_subject", False),
    ("filter_subjects", "filter_subjects", False),
    ("replay_policy", "replay_policy", True),
    ("rate_limit_bps", "rate_limit_bps", False),
    ("sample_freq", "sample_freq", False),
    ("max_waiting", "max_waiting", False),
    ("max_ack_pending", "max_ack_pending", False),
    ("flow_control", "flow_control", False),
    ("headers_only", "headers_only", False),
    ("max_batch", "max_batch", False),
    ("max_expires", "max_expires_ns", False),
    ("max_bytes", "max_bytes", False),
    ("deliver_subject", "deliver_subject", False),
    ("deliver_group", "deliver_group", False),
    ("idle_heartbeat", "idle_heartbeat_ns", False),
    ("inactive_threshold", "inactive_threshold_ns", False),
    ("num_replicas", "num_replicas", True),
    ("mem_storage", "mem_storage", False),
    ("direct", "direct", False),
    ("sourcing", "sourcing", False),
    ("metadata", "metadata", False),
    ("pause_until", "pause_until_ns", True),
    ("priority_groups", "priority_groups", False),
    ("priority_policy", "priority_policy", True),
    ("priority_timeout", "priority_timeout_ns", False),
)
_NAMES, _ATTRIBUTES, _ALWAYS = zip(*_FIELDS, strict=True)
_values = attrgetter(*_ATTRIBUTES)  # a listing of many consumers asks each for all of them
_TIMES = ("opt_start_time", "pause_until")
_times = attrgetter("opt_start_time_ns", "pause_until_ns")


def from_json(fields: Mapping[str, Any]) -> ConsumerConfig:
    """Return the configuration that `fields` (checked JSON) describes; what is missing is unset."""
    values: dict[str, Any] = {}
    for name, attribute, _always in _FIELDS:
        if name not in fields:
            continue
        value = fields[name]
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, str) and attribute.endswith("_ns"):
            value = parse_time_ns(value)
        values[attribute] = value
    if values.get("deliver_policy") == "undefined":
        values["deliver_policy"] = "all"
    return ConsumerConfig(**values)


def shown(config: ConsumerConfig, version: str, api_level: int) -> dict[str, Any]:
    """Return the JSON of responses, with the metadata that tells the server's version and level."""
    out = config.as_json()
    metadata = {**config.metadata, SERVER_VERSION_KEY: version, SERVER_LEVEL_KEY: str(api_level)}
    with_metadata: dict[str, Any] = {}
    for name, _attribute, _always in _FIELDS:
        if name == "metadata":
            with_metadata[name] = dict(sorted(metadata.items()))
        elif name in out:
            with_metadata[name] = out[name]
    return with_metadata
