"""The configuration of a consumer: plain values, and their JSON in the field order of nats-server.

Knows nothing of what is allowed (jetstream/rules/consumer.py) and of how a request is read
(jetstream/config/consumer_requests.py). The JSON leaves out what is unset, exactly as the peer does, and is also
the form kept on disk.

Source: nats.docs "Consumer configuration"; field order and omissions probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.gotext import moment_text
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.config.stream import META_LEVEL, META_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


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


# The order of the wire is that of the fields; these are shown when unset, but for times and the last.
_SHOWN = (
    "deliver_policy opt_start_time ack_policy replay_policy num_replicas pause_until priority_policy".split()
)
_ATTRIBUTES = tuple(each.name for each in fields(ConsumerConfig))
_NAMES = tuple(name.removesuffix("_ns") for name in _ATTRIBUTES)
_ALWAYS = tuple(name in _SHOWN for name in _NAMES)
_values = attrgetter(*_ATTRIBUTES)  # a listing of many consumers asks each for all of them
_TIMES = ("opt_start_time", "pause_until")
_times = attrgetter("opt_start_time_ns", "pause_until_ns")


def from_json(given: Mapping[str, Any]) -> ConsumerConfig:
    """Return the configuration that `given` (checked JSON) describes; what is missing is unset."""
    values: dict[str, Any] = {}
    for name, attribute in zip(_NAMES, _ATTRIBUTES, strict=True):
        if name not in given:
            continue
        value = given[name]
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
    metadata = {**config.metadata, META_VERSION: version, META_LEVEL: str(api_level)}
    return replace(config, metadata=dict(sorted(metadata.items()))).as_json()
