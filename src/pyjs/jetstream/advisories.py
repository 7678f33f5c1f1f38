"""Advisories: the fields common to all of them, and the advisories about streams.

An advisory is built only if it has a subscriber, which one lookup shows. This module knows nothing of API calls
(api/audit.py), and knows streams only by name.

Source: nats.docs "JetStream advisories"; fields, their order and the order of events probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid
from pyjs.base.rng import Rng
from pyjs.core.account import Account

if TYPE_CHECKING:
    from collections.abc import Mapping

_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}


def publish(
    account: Account,
    rng: Rng,
    subject: bytes,
    kind: str,
    now_ns: int,
    fields: Mapping[str, object],
    domain: str,
) -> None:
    """Publish an advisory of the type "io.nats.jetstream." + `kind`.

    If `domain` is empty, the advisory has no field `domain`.
    """
    event = {"type": f"io.nats.jetstream.{kind}", "id": nuid(rng), "timestamp": time_text(now_ns), **fields}
    if domain:
        event["domain"] = domain
    account.send(subject, orjson.dumps(event))


def publish_stream_action(
    account: Account, rng: Rng, name: str, action: str, now_ns: int, domain: str
) -> None:
    """Publish the advisory about a change of the stream `name`, if it has a subscriber.

    `action` is create, modify or delete.
    """
    subject = f"$JS.EVENT.ADVISORY.STREAM.{_STREAM_EVENTS[action]}.{name}".encode()
    if account.has_interest(subject):
        fields = {"stream": name, "action": action}
        publish(account, rng, subject, "advisory.v1.stream_action", now_ns, fields, domain)


def publish_batch_abandoned(
    account: Account, rng: Rng, name: str, batch: str, reason: str, now_ns: int, domain: str
) -> None:
    """Publish the advisory about an abandoned batch of the stream `name`, if it has a subscriber."""
    subject = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{name}".encode()
    if account.has_interest(subject):
        fields = {"stream": name, "batch": batch, "reason": reason}
        publish(account, rng, subject, "advisory.v1.stream_batch_abandoned", now_ns, fields, domain)
