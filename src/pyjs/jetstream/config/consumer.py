"""The configuration of a consumer: its options, each declared once, in the field order of nats-server.

This module knows nothing of checks (jetstream/rules/consumer.py) or requests (jetstream/config/consumer_requests.py).
The JSON omits unset options, exactly as nats-server does; the same JSON is stored.

Source: nats.docs "Consumer configuration"; field order and omissions probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.jetstream.config import declared
from pyjs.jetstream.config.declared import as_json, changed, option
from pyjs.jetstream.config.json_strict import (
    BOOL,
    DURATION,
    DURATIONS,
    INT,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT64,
    enum,
)
from pyjs.jetstream.config.level import META_LEVEL, META_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The configuration of a consumer. Durations are in ns, and times in ns since the epoch; 0 means unset."""

    durable_name: str = option(
        STRING,
        "The name of a durable consumer, which exists until deleted or unused for `inactive_threshold`.",
        updatable=False,
    )
    name: str = option(STRING, "The name; without `durable_name` the consumer is ephemeral.", updatable=False)
    description: str = option(STRING, "A description for users.")
    deliver_policy: str = option(
        enum("all", "undefined", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"),
        "The message at which delivery starts; `undefined` means `all`.",
        always=True,
        updatable=False,
    )
    opt_start_seq: int = option(UINT64, "The sequence to start at.", updatable=False)
    opt_start_time_ns: int | None = option(TIME, "The time to start at.", updatable=False)
    ack_policy: str = option(
        enum("none", "all", "explicit", "flow_control"),
        "The required acknowledgements; with `all`, each one also covers all earlier messages.",
        always=True,
        updatable=False,
    )
    ack_wait_ns: int = option(
        DURATION, "Time after which a delivery without acknowledgement is repeated; 0: 30s."
    )
    max_deliver: int = option(INT, "Maximum number of deliveries of a message; 0 and -1: no limit.")
    backoff_ns: tuple[int, ...] = option(DURATIONS, "The waits between deliveries; the last wait repeats.")
    filter_subject: str = option(STRING, "The subjects to deliver; empty: all.")
    filter_subjects: tuple[str, ...] = option(STRINGS, "Several filters, in place of `filter_subject`.")
    replay_policy: str = option(
        enum("instant", "original"),
        "Deliver at once, or at the original pace of publishing.",
        always=True,
        updatable=False,
    )
    rate_limit_bps: int = option(UINT64, "Maximum rate of a push consumer in bits per second; 0: no limit.")
    sample_freq: str = option(STRING, "The percentage of acknowledgements that are measured, such as `50%`.")
    max_waiting: int = option(INT, "Maximum number of waiting pull requests; 0: 512.", updatable=False)
    max_ack_pending: int = option(
        INT,
        "Maximum number of unacknowledged messages; 0: the stream's limit, or 1000; -1: no limit.",
    )
    flow_control: bool = option(BOOL, "Wait for a push client that falls behind.", updatable=False)
    headers_only: bool = option(BOOL, "Deliver headers and sizes without payloads.")
    max_batch: int = option(INT, "Maximum `batch` of a pull request; 0: no limit.")
    max_expires_ns: int = option(DURATION, "Maximum `expires` of a pull request; 0: no limit.")
    max_bytes: int = option(INT, "Maximum `max_bytes` of a pull request; 0: no limit.")
    deliver_subject: str = option(STRING, "The subject to push to; empty: a pull consumer.")
    deliver_group: str = option(STRING, "The queue group to push to.")
    idle_heartbeat_ns: int = option(
        DURATION, "Time without messages after which a push consumer sends a heartbeat.", updatable=False
    )
    inactive_threshold_ns: int = option(
        DURATION,
        "Time after which an unused consumer is removed; 0: 5s if it is ephemeral, never if durable.",
    )
    num_replicas: int = option(
        INT, "Number of replicas of the consumer; 0: as many as the stream has.", always=True
    )
    mem_storage: bool = option(BOOL, "Store the consumer's state in memory.", updatable=False)
    direct: bool = option(BOOL, "Set by servers for the consumers of mirrors and sources.", updatable=False)
    sourcing: bool = option(
        BOOL, "Set by servers for mirrors and sources that acknowledge messages.", updatable=False
    )
    metadata: Mapping[str, str] = option(STRING_MAP, "Names and values for applications.")
    pause_until_ns: int | None = option(TIME, "Deliveries are paused until this time.", level=1)
    priority_groups: tuple[str, ...] = option(
        STRINGS, "Names of client groups; each pull request names one of them.", level=1
    )
    priority_policy: str = option(
        enum(
            "none", "overflow", "pinned_client", "prioritized", unknown_text="unknown priority policy: {raw}"
        ),
        "The rule that decides which clients of a group get messages.",
        level=1,
    )
    priority_timeout_ns: int = option(
        DURATION, "With `pinned_client`: time without requests after which another client is pinned.", level=1
    )

    @property
    def durable(self) -> bool:
        """Whether this is a durable consumer, which has a durable name."""
        return bool(self.durable_name)

    @property
    def push(self) -> bool:
        """Whether this is a push consumer, which has a deliver subject."""
        return bool(self.deliver_subject)

    @property
    def filters(self) -> tuple[str, ...]:
        """The subject filters, or () if the consumer gets every message."""
        return (self.filter_subject,) if self.filter_subject else self.filter_subjects


def from_json(given: Mapping[str, Any]) -> ConsumerConfig:
    """Return the configuration in the JSON values `given`, which must have been checked.

    Missing options keep their defaults.
    """
    if given.get("deliver_policy", "undefined") == "undefined":
        given = {**given, "deliver_policy": "all"}
    return declared.from_json(ConsumerConfig, given)


def shown(config: ConsumerConfig, version: str, api_level: int) -> dict[str, Any]:
    """Return the configuration as responses show it, with the server's version and API level as metadata."""
    metadata = {**config.metadata, META_VERSION: version, META_LEVEL: str(api_level)}
    return as_json(changed(config, metadata=metadata))
