"""The state of a consumer in archives, and its conversion to the form that this server stores.

An archive has the delivered sequences, the ack floor, the time of each unacknowledged delivery, and the number of
redeliveries of each message. It lacks the delays of naks: after a restore, a message with such a delay waits for
`ack_wait`. It also lacks the list of messages with which a `last_per_subject` consumer begins: after a restore, the
consumer continues with every message.

Messages that were given up may be below the ack floor, and must not count as acknowledged. So archives of this server
have two more keys, which nats-server ignores:

    "pyjs_given_up": { stream_seq: number of deliveries }, "pyjs_terms": { stream_seq: reason of a client's +TERM }

Source: `ConsumerState` of nats-server, JSON in archives of version 2; o.dat in those of version 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.consumer_file import ConsumerState
from pyjs.archive.entries import INT64_MAX
from pyjs.archive.frames import BadArchive
from pyjs.jetstream.config.consumer import ConsumerConfig, from_json
from pyjs.jetstream.config.consumer_requests import CONSUMER_CONFIG
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.config.stream_requests import read
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.record import VERSION
from pyjs.jetstream.dead_letters.letter import reason_of_term

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

WAITS = 4  # `where` of a delivery that waits for its ack, see acks/pending.pyx
PENDING_MAX = 1_000_000  # maximum number of pending deliveries of one consumer
ENTRIES_STEP = 4096  # number of deliveries read in one step: a few milliseconds
COUNT_MAX = 0xFFFFFFFF


def archived(consumer: Consumer, last_seq: int) -> bytes:
    """Return the configuration and the state of a consumer as JSON, without sequences after `last_seq`."""
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
    if state["spent"]:
        out["pyjs_given_up"] = {str(seq): count for seq, count in state["spent"] if seq <= last_seq}
    if "terms" in state:
        out["pyjs_terms"] = {str(seq): reason for seq, reason in state["terms"] if seq <= last_seq}
    config = as_json(consumer.config) | {"name": consumer.name}
    return orjson.dumps({"config": config, "state": out})


def read_archived(data: bytes, name: str) -> Generator[None, None, tuple[ConsumerConfig, ConsumerState]]:
    """Return the configuration and the state of a consumer from its JSON in an archive, in steps.

    Raises:
        BadArchive: the JSON is invalid.
        ApiError: 10025 if the configuration is invalid.
    """
    try:
        found = orjson.loads(data)
        given, state = found["config"], found["state"]
        if not isinstance(given, dict) or not isinstance(state, dict):
            raise TypeError("it has no configuration or no state")
        read_state = yield from _state(state)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadArchive(f"failed to decode consumer {name!r} state: {error}") from None
    return read_config(orjson.dumps(given), name), read_state


def read_config(data: bytes, name: str) -> ConsumerConfig:
    """Return the configuration of the consumer `name` from JSON.

    Raises:
        BadArchive: the configuration belongs to another consumer.
        ApiError: 10025 if the configuration is invalid.
    """
    config = from_json(read(data, CONSUMER_CONFIG, False))
    if (config.durable_name or config.name or name) != name:
        raise BadArchive(f"consumer {name!r} has the configuration of another one")
    return replace(config, name=name)


def _state(given: dict[str, Any]) -> Generator[None, None, ConsumerState]:
    """Return the state in the JSON of an archive, in steps.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a value is missing or invalid.
    """
    pending: list[tuple[int, int, int]] = []
    for key, entry in (given.get("pending") or {}).items():
        pending.append((_number(int(key)), _number(entry["Sequence"]), _time(entry["Timestamp"])))
        if len(pending) % ENTRIES_STEP == 0:
            yield
    redelivered = yield from _counts(given, "redelivered")
    given_up = yield from _counts(given, "pyjs_given_up")
    terms: dict[int, str] = {}
    for key, reason in (given.get("pyjs_terms") or {}).items():
        terms[_number(int(key))] = reason_of_term(reason).decode()
        if len(terms) % ENTRIES_STEP == 0:
            yield
    delivered, floor = _pair(given["delivered"]), _pair(given["ack_floor"])
    return ConsumerState(delivered, floor, pending, redelivered, given_up, terms)


def _counts(given: dict[str, Any], name: str) -> Generator[None, None, dict[int, int]]:
    """Return the object `name` in the JSON of an archive as a map from sequences to numbers, in steps."""
    counts: dict[int, int] = {}
    for key, count in (given.get(name) or {}).items():
        counts[_number(int(key))] = _number(count)
        if len(counts) % ENTRIES_STEP == 0:
            yield
    return counts


def stored_state(state: ConsumerState) -> Generator[None, None, bytes]:
    """Return the snapshot for a state file from the state in an archive, in steps.

    Deliveries up to the ack floor become acknowledged, even if the archive lists them as unacknowledged, unless they
    were given up.

    Raises:
        BadArchive: the state is invalid.
    """
    (cseq, delivered), (floor_cseq, floor) = state.delivered, state.ack_floor
    delivered, again = max(delivered, floor), state.redelivered
    if max(len(state.pending), len(again), len(state.given_up)) > PENDING_MAX:
        raise BadArchive(f"more than {PENDING_MAX} pending, redelivered or given-up messages")
    entries: list[list[int]] = []
    before = floor
    for seq, consumer_seq, ts in sorted(each for each in state.pending if each[0] > floor):
        if not before < seq <= delivered:
            raise BadArchive(f"message {seq} is pending, {delivered} delivered, {before} pending before it")
        before = seq
        count = min(again.get(seq, 0) + 1, COUNT_MAX)
        entries.append([seq, consumer_seq, ts, count, WAITS, 0])
        if len(entries) % ENTRIES_STEP == 0:
            yield
    waiting = {entry[0] for entry in entries}
    spent = {
        seq: min(count + 1, COUNT_MAX)
        for seq, count in again.items()
        if floor < seq <= delivered and seq not in waiting
    }
    for seq, count in state.given_up.items():
        if 0 < seq <= delivered and seq not in waiting:
            spent[seq] = min(max(count, 1), COUNT_MAX)
    values = {
        "next_seq": delivered + 1,
        "delivered": [max(cseq, floor_cseq), delivered],
        "floor": [floor_cseq, floor],
        "pending": entries,
        "spent": list(spent.items()),
        "skips": [],
        "skips_end": 0,
    }
    terms = [(seq, reason) for seq, reason in state.terms.items() if seq in spent]
    return orjson.dumps({"version": VERSION, **values, **({"terms": terms} if terms else {})})


def _pair(given: dict[str, Any]) -> tuple[int, int]:
    return _number(given["consumer_seq"]), _number(given["stream_seq"])


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < INT64_MAX:
        raise ValueError(f"{value!r} is no sequence")
    return value


def _time(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is no time")
    return value
