"""All requests that a client can send to JetStream, from the tables that the decoders use.

A body belongs to the `Struct` with which its handler decodes it, whose kinds have the ranges of base/bounds; a header
and an ack payload belong to a form named here. tests/fuzz/test_border.py draws from this list, and
tests/unit/jetstream/api/test_border_table.py checks that no endpoint is missing. CONNECT has its own table, in
core/auth/handshake.

Source: nats.docs "JetStream wire API Reference", "Headers".
"""

from __future__ import annotations

from typing import NamedTuple

from pyjs.jetstream.config import consumer_requests, stream_requests
from pyjs.jetstream.config.json_strict import Struct


class Body(NamedTuple):
    """The body of one kind of request, and the number of answers to it."""

    struct: Struct | None  # None: the request has no body
    answers: tuple[int, int | None] = (1, 1)  # minimum and maximum number of answers; None: no maximum


NO_BODY = Body(None)
MAY_WAIT = (0, None)

# By the words of the subject, as in api/table.py; pull requests and direct gets have their own subscriptions.
BODIES: dict[str, Body] = {
    "INFO": NO_BODY,
    "STREAM.CREATE": Body(stream_requests.STREAM_REQUEST),
    "STREAM.UPDATE": Body(stream_requests.STREAM_REQUEST),
    "STREAM.INFO": Body(stream_requests.INFO_REQUEST),
    "STREAM.NAMES": Body(stream_requests.NAMES_REQUEST),
    "STREAM.LIST": Body(stream_requests.LIST_REQUEST),
    "STREAM.DELETE": NO_BODY,
    "STREAM.PURGE": Body(stream_requests.PURGE_REQUEST),
    "STREAM.SNAPSHOT": Body(stream_requests.SNAPSHOT_REQUEST),
    "STREAM.RESTORE": Body(stream_requests.RESTORE_REQUEST),
    "STREAM.MSG.GET": Body(stream_requests.GET_MSG_REQUEST),
    "STREAM.MSG.DELETE": Body(stream_requests.DELETE_MSG_REQUEST),
    "STREAM.LEADER.STEPDOWN": NO_BODY,
    "STREAM.PEER.REMOVE": NO_BODY,
    "STREAM.PEER.EVACUATE": NO_BODY,
    "STREAM.CANCEL_MOVE": NO_BODY,
    "CONSUMER.CREATE": Body(consumer_requests.CREATE_REQUEST),
    "CONSUMER.DURABLE.CREATE": Body(consumer_requests.CREATE_REQUEST),
    "CONSUMER.INFO": NO_BODY,
    "CONSUMER.NAMES": Body(consumer_requests.OFFSET_REQUEST),
    "CONSUMER.LIST": Body(consumer_requests.OFFSET_REQUEST),
    "CONSUMER.DELETE": NO_BODY,
    "CONSUMER.PAUSE": Body(consumer_requests.PAUSE_REQUEST),
    "CONSUMER.UNPIN": Body(consumer_requests.UNPIN_REQUEST),
    "CONSUMER.RESET": Body(None, (0, 1)),  # there is no answer for an unknown consumer, as in nats-server
    "CONSUMER.LEADER.STEPDOWN": NO_BODY,
    "PYJS.BULK.LIST": Body(stream_requests.BULK_LIST_REQUEST),
    "PYJS.BULK.READ": Body(stream_requests.BULK_READ_REQUEST, (1, None)),
    "PYJS.WHY": NO_BODY,
    "PYJS.DEAD_LETTERS.REPLAY": Body(stream_requests.DEAD_LETTERS_REPLAY_REQUEST),
    "CONSUMER.MSG.NEXT": Body(consumer_requests.NEXT_REQUEST, MAY_WAIT),
    "DIRECT.GET": Body(stream_requests.GET_MSG_REQUEST, (1, None)),
}

# Headers of a publish that a stream evaluates, and the form of their values.
HEADERS: dict[str, str] = {
    "Nats-Msg-Id": "text",
    "Nats-Expected-Stream": "name",
    "Nats-Expected-Last-Sequence": "number",
    "Nats-Expected-Last-Subject-Sequence": "number",
    "Nats-Expected-Last-Subject-Sequence-Subject": "subject",
    "Nats-Expected-Last-Msg-Id": "text",
    "Nats-Rollup": "word",
    "Nats-TTL": "duration",
    "Nats-Incr": "number",
    "Nats-Batch-Id": "text",
    "Nats-Batch-Sequence": "number",
    "Nats-Schedule": "text",
    "Nats-Schedule-Target": "subject",
    "Nats-Schedule-Source": "subject",
    "Nats-Schedule-TTL": "duration",
    "Nats-Schedule-Rollup": "word",
    "Nats-Schedule-Time-Zone": "name",
    "Nats-Schedule-Next": "word",
    "Nats-Scheduler": "subject",
    "Nats-Stream-Source": "text",
    "Nats-Required-Api-Level": "number",
    "Nats-Marker-Reason": "word",
}

# Verbs of ack payloads, and the form of the argument after them.
ACKS: dict[str, str] = {
    "": "",
    "+ACK": "",
    "+WPI": "",
    "-NAK": "delay",
    "+NXT": "pull",
    "+TERM": "text",
}
