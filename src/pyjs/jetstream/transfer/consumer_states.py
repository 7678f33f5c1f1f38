"""The state of a consumer as archives have it, and as this server stores it.

An archive has the delivered sequences, the ack floor, the time of each unacknowledged delivery, and how often
messages were delivered again. It lacks delays of a nak and the list of a `last_per_subject` start: after a restore
such messages wait for `ack_wait`, and such a start continues with every message.

Source: `ConsumerState` of nats-server, JSON in archives of version 2; o.dat in those of version 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.entries import INT64_MAX
from pyjs.archive.frames import BadArchive
from pyjs.jetstream.config.consumer import ConsumerConfig, from_json
from pyjs.jetstream.config.consumer_requests import CONSUMER_CONFIG
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.config.stream_requests import read
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.record import VERSION

if TYPE_CHECKING:
    from typing import Any

WAITS = 4  # `where` of a delivery that waits for its ack, see acks/pending.pyx
PENDING_MAX = 1_000_000  # deliveries of one consumer


def archived(consumer: Consumer, last_seq: int) -> bytes:
    """Return configuration and state of a consumer as JSON, without what follows `last_seq`."""
    state: dict[str, Any] = dict(consumer.dump_state())
    (cseq, delivered), (floor_cseq, floor) = state["delivered"], state["floor"]
    out: dict[str, Any] = {
        "delivered": {"consumer_seq": cseq, "stream_seq": min(delivered, last_seq)},
        "ack_floor": {"consumer_seq": floor_cseq, "stream_seq": min(floor, last_seq)},
    }
    pending = [each for each in state["pending"] if each[0] <= last_seq]
    if pending:
        out["pending"] = {str(each[0]): {"Sequence": each[1], "Timestamp": each[2]} for each in pending}
    again = {str(each[0]): each[3] - 1 for each in pending if each[3] > 1}
    again |= {str(seq): max(count - 1, 1) for seq, count in state["spent"] if seq <= last_seq}
    if again:
        out["redelivered"] = again
    config = as_json(consumer.config) | {"name": consumer.name}
    return orjson.dumps({"config": config, "state": out})


def read_archived(data: bytes, name: str) -> tuple[ConsumerConfig, bytes]:
    """Return configuration and stored state of a consumer from its JSON in an archive.

    Raises:
        BadArchive: it is invalid.
        ApiError: 10025, the configuration is.
    """
    try:
        found = orjson.loads(data)
        given, state = found["config"], found["state"]
        if not isinstance(given, dict) or not isinstance(state, dict):
            raise TypeError("it has no configuration or no state")
        snapshot = stored_state(state)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadArchive(f"failed to decode consumer {name!r} state: {error}") from None
    config = from_json(read(orjson.dumps(given), CONSUMER_CONFIG, False))
    if (config.durable_name or config.name or name) != name:
        raise BadArchive(f"consumer {name!r} has the configuration of another one")
    return replace(config, name=name), snapshot


def stored_state(state: dict[str, Any]) -> bytes:
    """Return the state file's snapshot for a state of an archive.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is invalid.
    """
    cseq, delivered = _pair(state["delivered"])
    floor_cseq, floor = _pair(state["ack_floor"])
    again = {_number(int(seq)): _number(count) for seq, count in (state.get("redelivered") or {}).items()}
    pending = state.get("pending") or {}
    if len(pending) > PENDING_MAX or len(again) > PENDING_MAX:
        raise ValueError(f"{len(pending)} pending and {len(again)} redelivered messages")
    entries = []
    for key in sorted(pending, key=int):
        seq, ts = _number(int(key)), pending[key]["Timestamp"]
        if not 0 < seq <= max(delivered, floor) or not isinstance(ts, int) or not 0 <= ts <= INT64_MAX:
            raise ValueError(f"message {key} pending, {delivered} delivered")
        count = min(again.pop(seq, 0) + 1, 0xFFFFFFFF)
        entries.append([seq, _number(pending[key]["Sequence"]), ts, count, WAITS, 0])
    values = {
        "next_seq": max(delivered, floor) + 1,
        "delivered": [max(cseq, floor_cseq), max(delivered, floor)],
        "floor": [floor_cseq, floor],
        "pending": entries,
        "spent": [
            [seq, min(count + 1, 0xFFFFFFFF)] for seq, count in again.items() if floor < seq <= delivered
        ],
        "skips": [],
        "skips_end": 0,
    }
    return orjson.dumps({"version": VERSION, **values})


def _pair(given: dict[str, Any]) -> tuple[int, int]:
    return _number(given["consumer_seq"]), _number(given["stream_seq"])


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < INT64_MAX:
        raise ValueError(f"{value!r} is no sequence")
    return value
