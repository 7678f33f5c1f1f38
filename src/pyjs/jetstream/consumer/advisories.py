"""Advisories and metrics of consumers, as JSON.

An advisory without a subscriber is not built. This module knows nothing of consumers but their names.

Source: ADR-22 and the schemas of nats.docs "JetStream advisories"; fields probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.rng import Rng
from pyjs.core.account import Account
from pyjs.jetstream import advisories

if TYPE_CHECKING:
    from typing import Any

# kind -> (subject between "$JS.EVENT." and ".<stream>.<consumer>", type after "io.nats.jetstream.")
_EVENTS = {
    "max_deliver": ("ADVISORY.CONSUMER.MAX_DELIVERIES", "advisory.v1.max_deliver"),
    "nak": ("ADVISORY.CONSUMER.MSG_NAKED", "advisory.v1.nak"),
    "terminated": ("ADVISORY.CONSUMER.MSG_TERMINATED", "advisory.v1.terminated"),
    "created": ("ADVISORY.CONSUMER.CREATED", "advisory.v1.consumer_action"),
    "deleted": ("ADVISORY.CONSUMER.DELETED", "advisory.v1.consumer_action"),
    "pause": ("ADVISORY.CONSUMER.PAUSE", "advisory.v1.consumer_pause"),
    "pinned": ("ADVISORY.CONSUMER.PINNED", "advisory.v1.consumer_group_pinned"),
    "unpinned": ("ADVISORY.CONSUMER.UNPINNED", "advisory.v1.consumer_group_unpinned"),
    "dead_letter_refused": ("ADVISORY.CONSUMER.DEAD_LETTER_REFUSED", "advisory.v1.dead_letter_refused"),
    "ack": ("METRIC.CONSUMER.ACK", "metric.v1.consumer_ack"),
}


class ConsumerEvents:
    """The advisories and metrics of one consumer, each of which is either queued or published immediately."""

    def __init__(self, account: Account, rng: Rng, stream: str, consumer: str, domain: str = "") -> None:
        self._account = account
        self._rng = rng
        self._names = {"stream": stream, "consumer": consumer}
        self._domain = domain
        self.queued: list[tuple[str, dict[str, Any]]] = []  # (kind, fields) of the advisories of this turn

    def note(self, kind: str, **fields: Any) -> None:
        """Queue an advisory of `kind` for `send_queued`."""
        self.queued.append((kind, fields))

    def note_terminated(self, stream_seq: int, consumer_seq: int, deliveries: int, reason: str) -> None:
        """Queue the advisory about a terminated message, which will not be delivered again."""
        fields = {"consumer_seq": consumer_seq, "stream_seq": stream_seq, "deliveries": deliveries}
        self.note("terminated", **fields, **({"reason": reason} if reason else {}))

    def send_queued(self, now_ns: int, kinds: tuple[str, ...] = ()) -> None:
        """Publish the queued advisories of `kinds`, or all of them if `kinds` is empty."""
        if not self.queued:
            return
        events = [event for event in self.queued if not kinds or event[0] in kinds]
        self.queued = [event for event in self.queued if kinds and event[0] not in kinds]
        for kind, fields in events:
            self.send(kind, now_ns, **fields)

    def send(self, kind: str, now_ns: int, **fields: Any) -> None:
        """Publish an advisory of `kind`, if it has a subscriber."""
        subject = self._subject(kind)
        if self._account.has_interest(subject):
            event = {**self._names, **fields}
            advisories.publish(
                self._account, self._rng, subject, _EVENTS[kind][1], now_ns, event, self._domain
            )

    def _subject(self, kind: str) -> bytes:
        names = self._names
        return f"$JS.EVENT.{_EVENTS[kind][0]}.{names['stream']}.{names['consumer']}".encode()
