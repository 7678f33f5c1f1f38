"""A reason: its kind, which programs can compare; its text for people; and the numbers in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.gotext import duration_text, time_text

if TYPE_CHECKING:
    from typing import Any


class Kind(StrEnum):
    """The kinds of reasons, as they appear in JSON."""

    # reasons why a consumer delivers nothing
    PAUSED = "paused"
    UP_TO_DATE = "up_to_date"
    STREAM_EMPTY = "stream_empty"
    FILTER_MATCHES_NOTHING = "filter_matches_nothing"
    AWAITING_ACKS = "awaiting_acks"
    BACKOFF = "backoff"
    MAX_DELIVER = "max_deliver"
    DEAD_LETTERS = "dead_letters"
    NO_INTEREST = "no_interest"
    NO_WAITING_PULL = "no_waiting_pull"
    PINNED = "pinned"
    OVERFLOW = "overflow"
    FLOW_CONTROL = "flow_control"
    MAX_ACK_PENDING = "max_ack_pending"
    RATE_LIMIT = "rate_limit"
    REPLAY = "replay_original"
    SLOW_RECEIVER = "slow_receiver"
    WRITING_STATE = "writing_state"
    PURGING = "purging"
    # reasons why a stream refuses publishes
    SEALED = "sealed"
    MIRROR = "mirror"
    NO_SUBJECTS = "no_subjects"
    STORE_FAILED = "store_failed"
    MAX_MSGS = "max_msgs"
    MAX_BYTES = "max_bytes"
    ACCOUNT_LIMIT = "account_limit"
    SERVER_LIMIT = "server_limit"
    NO_CONSUMERS = "no_consumers"
    ORIGIN_UNHEARD = "origin_unheard"
    # both
    OFFLINE = "offline"
    NO_LEADER = "no_leader"
    NO_META_LEADER = "no_meta_leader"
    REPLICA_LAGGING = "replica_lagging"
    UNRECOVERED = "unrecovered"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a problem, or one fact about it."""

    kind: Kind
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    stops: bool = True  # False: a fact that does not stop deliveries or publishes

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the reason in the JSON of an answer."""
        return {"kind": self.kind.value, "text": self.text, "stops": self.stops, **self.data}


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a report, and whether its reader may see clients."""

    now_ns: int  # on the monotonic clock
    skew_ns: int  # wall clock minus monotonic clock
    shows_clients: bool

    def ago(self, at_ns: int) -> str:
        """Return the time since `at_ns` as text, such as "12s"."""
        return about(max(self.now_ns - at_ns, 0))

    def until(self, at_ns: int) -> str:
        """Return the time until `at_ns` as text, such as "1m30s"."""
        return about(max(at_ns - self.now_ns, 0))

    def text(self, at_ns: int) -> str:
        """Return the wall clock time of `at_ns` as RFC 3339 text."""
        return time_text(at_ns + self.skew_ns)


def about(ns: int) -> str:
    """Return a duration as text: in whole seconds, or in whole milliseconds if it is below ten seconds."""
    unit = NS_PER_S if ns >= 10 * NS_PER_S else NS_PER_MS
    return duration_text(ns // unit * unit)


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun in the singular or plural: "1 message", "1,000 messages"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
