"""ConsumerInfo for the API (INFO, CREATE, LIST) and for monitoring.

Source: nats.docs "ConsumerInfo"; field order and omissions probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bounds import INT64
from pyjs.base.gotext import time_text
from pyjs.jetstream.config.consumer import shown
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.config.level import API_LEVEL
from pyjs.jetstream.config.stream import PEER_VERSION
from pyjs.jetstream.consumer.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any


def know_pending(consumer: Consumer) -> Generator[None, None, None]:
    """Count the num_pending of a consumer in steps; stop early if the consumer is closed."""
    while not consumer.closed and not consumer.cursor.count_some():
        yield


def consumer_info(
    consumer: Consumer,
    now_ns: int,
    *,
    listed: bool = False,
    config: bool = True,
    cluster: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the ConsumerInfo of a consumer as JSON values.

    With `listed`, the metadata in the consumer's configuration lacks the server's version.
    """
    acks, requests = consumer.acks, consumer.requests
    if requests is not None:
        consumer.sweep_waiting()
    skew = consumer.account.turn.skew  # ns to add to a time so that it agrees with the current wall clock
    redelivered = acks.pending.redelivered + len(acks.exhausted)
    out: dict[str, Any] = {
        "stream_name": consumer.stream_name,
        "name": consumer.name,
        "created": time_text(consumer.created_ns),
        "config": None,
        "delivered": _position(acks.delivered_cseq, acks.delivered_seq, consumer.delivered_at, skew),
        "ack_floor": _position(acks.floor_cseq, acks.floor_seq, consumer.acked_at, skew),
        "num_ack_pending": acks.pending.count,
        "num_redelivered": 0 if consumer.config.max_deliver == 1 else redelivered,
        "num_waiting": 0 if requests is None else requests.queue.count,
        "num_pending": consumer.cursor.num_pending(),
    }
    if not config:
        del out["config"]
    else:
        out["config"] = _config(consumer, listed)
    if cluster is not None:
        out["cluster"] = cluster
    if consumer.push is not None and consumer.push.bound:
        out["push_bound"] = True
    if consumer.paused_until > now_ns:
        out["paused"] = True
        out["pause_remaining"] = INT64.clamp((consumer.config.pause_until_ns or 0) - now_ns - skew)
    out["ts"] = time_text(now_ns + skew)
    if consumer.config.priority_groups:
        out["priority_groups"] = [_group_state(consumer)]
    return out


def _config(consumer: Consumer, listed: bool) -> dict[str, Any]:
    return as_json(consumer.config) if listed else shown(consumer.config, PEER_VERSION, API_LEVEL)


def _group_state(consumer: Consumer) -> dict[str, Any]:
    """Return the state of the consumer's priority group."""
    out = {"group": consumer.config.priority_groups[0]}
    assert consumer.requests is not None
    pin = consumer.requests.pin
    if pin.id:
        out["pinned_client_id"] = pin.id.decode()
    out["pinned_ts"] = time_text(pin.pinned_at + (consumer.account.turn.skew if pin.pinned_at else 0))
    return out


def _position(consumer_seq: int, stream_seq: int, at_ns: int, skew: int) -> dict[str, Any]:
    out: dict[str, Any] = {"consumer_seq": consumer_seq, "stream_seq": stream_seq}
    if at_ns:
        out["last_active"] = time_text(at_ns + skew)
    return out
