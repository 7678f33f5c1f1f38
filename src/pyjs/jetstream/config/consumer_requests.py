"""Consumer requests: tables of their fields for the strict decoder, and the decoded request.

This module knows nothing of limits and conflicts (jetstream/rules/consumer.py).

Source: error messages probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import NamedTuple

from pyjs.jetstream.config.consumer import ConsumerConfig, from_json
from pyjs.jetstream.config.declared import struct_of
from pyjs.jetstream.config.json_strict import (
    BOOL,
    DURATION,
    INT,
    INT64,
    STRING,
    TIME,
    UINT64,
    Struct,
    enum,
    struct,
)
from pyjs.jetstream.config.stream_requests import read

CONSUMER_CONFIG = struct_of(ConsumerConfig)
CREATE_REQUEST = Struct(
    "CreateConsumerRequest",
    {
        "stream_name": STRING,
        "config": struct(CONSUMER_CONFIG),
        "action": enum("", "create", "update", unknown_text="unknown consumer action: {raw}"),
        "pedantic": BOOL,
    },
)

PAUSE_REQUEST = Struct("JSApiConsumerPauseRequest", {"pause_until": TIME})
RESET_REQUEST = Struct("JSApiConsumerResetRequest", {"seq": UINT64})
UNPIN_REQUEST = Struct("JSApiConsumerUnpinRequest", {"group": STRING})
OFFSET_REQUEST = Struct("JSApiConsumersRequest", {"offset": INT})

PRIORITY_FIELDS = {
    "group": STRING,
    "min_pending": INT64,
    "min_ack_pending": INT64,
    "id": STRING,
    "priority": INT,
}
NEXT_REQUEST = Struct(
    "",  # as in nats-server's text: "Go struct field .batch"
    {
        "expires": DURATION,
        "batch": INT,
        "max_bytes": INT,
        "no_wait": BOOL,
        "idle_heartbeat": DURATION,
        **PRIORITY_FIELDS,
    },
)


class CreateRequest(NamedTuple):
    """The decoded body of a CONSUMER.CREATE request."""

    stream_name: str
    config: ConsumerConfig
    action: str  # "", "create" or "update"
    pedantic: bool


def read_create(body: bytes, strict: bool) -> CreateRequest:
    """Decode the body of a CONSUMER.CREATE request; if `strict`, refuse unknown fields.

    Raises:
        ApiError: the body is not JSON or has an invalid field (10025).
    """
    fields = read(body, CREATE_REQUEST, strict)
    return CreateRequest(
        fields.get("stream_name", ""),
        from_json(fields.get("config", {})),
        fields.get("action", ""),
        fields.get("pedantic", False),
    )
