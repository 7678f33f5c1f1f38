"""Stream requests: the tables of fields for the strict decoder, and the decoded requests.

This module knows nothing of limits and conflicts (jetstream/rules/stream.py).

Source: error messages probed on nats-server 2.15.1; nats.docs "JetStream wire API Reference".
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import DEFAULT
from pyjs.jetstream.config.declared import from_json, options_of, struct_of
from pyjs.jetstream.config.json_strict import (
    BOOL,
    INT,
    INT64,
    STRING,
    STRINGS,
    TIME,
    UINT64,
    JsonFault,
    Kind,
    Struct,
    decode,
    struct,
)
from pyjs.jetstream.config.stream import Placement, StreamConfig

if TYPE_CHECKING:
    from typing import Any

CONFIG_FIELDS = struct_of(StreamConfig).fields
STREAM_REQUEST = Struct("StreamConfigRequest", {**CONFIG_FIELDS, "pedantic": BOOL})

SNAPSHOT_REQUEST = Struct(
    "JSApiStreamSnapshotRequest",
    {"deliver_subject": STRING, "no_consumers": BOOL, "chunk_size": INT, "window_size": INT, "jsck": BOOL},
)
STATE = Struct(
    "StreamState",
    {
        **dict.fromkeys(("messages", "bytes", "first_seq", "last_seq"), UINT64),
        **dict.fromkeys(("first_ts", "last_ts"), TIME),
        **dict.fromkeys(("num_subjects", "num_deleted", "consumer_count"), INT),
        "subjects": Kind("map", "map[string]uint64", UINT64),
        "deleted": Kind("list", "[]uint64", UINT64),
    },
)
RESTORE_REQUEST = Struct(
    "JSApiStreamRestoreRequest",
    {"config": struct(Struct("StreamConfig", CONFIG_FIELDS)), "state": struct(STATE)},
)

INFO_REQUEST = Struct(
    "JSApiStreamInfoRequest", {"offset": INT, "deleted_details": BOOL, "subjects_filter": STRING}
)
NAMES_REQUEST = Struct("JSApiStreamNamesRequest", {"offset": INT, "subject": STRING})
LIST_REQUEST = Struct("JSApiStreamListRequest", {"offset": INT, "subject": STRING})
PURGE_REQUEST = Struct("JSApiStreamPurgeRequest", {"seq": UINT64, "filter": STRING, "keep": UINT64})
DELETE_MSG_REQUEST = Struct("JSApiMsgDeleteRequest", {"seq": UINT64, "no_erase": BOOL})
GET_MSG_REQUEST = Struct(
    "JSApiMsgGetRequest",
    {
        "seq": UINT64,
        "last_by_subj": STRING,
        "next_by_subj": STRING,
        "batch": INT,
        "max_bytes": INT,
        "start_time": TIME,
        "multi_last": STRINGS,
        "up_to_seq": UINT64,
        "up_to_time": TIME,
        "no_hdr": BOOL,
    },
)
STEPDOWN_REQUEST = Struct("JSApiLeaderStepdownRequest", {"placement": struct(struct_of(Placement))})
SERVER_REMOVE_REQUEST = Struct("JSApiMetaServerRemoveRequest", {"peer": STRING, "peer_id": STRING})
SERVER_EVACUATE_REQUEST = Struct("JSApiMetaServerEvacuateRequest", {"peer": STRING, "peer_id": STRING})
ACCEPT_LOSS_REQUEST = Struct(
    "JSApiMetaServerAcceptLossRequest", dict.fromkeys(("peer", "account", "stream", "lost"), STRING)
)
PEER_REMOVE_REQUEST = Struct("JSApiStreamRemovePeerRequest", {"peer": STRING})
BULK_LIST_REQUEST = Struct("BulkListRequest", {"offset": INT64})
BULK_READ_REQUEST = Struct(
    "BulkReadRequest",
    {
        **dict.fromkeys(("seq", "end_seq"), UINT64),
        "created": STRING,
        "subjects": STRINGS,
        **dict.fromkeys(("max_bytes", "chunk_bytes"), INT64),
        **dict.fromkeys(("entries_only", "unchecked"), BOOL),
    },
)
DEAD_LETTERS_REPLAY_REQUEST = Struct(
    "DeadLettersReplayRequest",
    {
        "seq": UINT64,
        "limit": INT64,
        **dict.fromkeys(("stream", "consumer", "subject", "reason"), STRING),
        "keep": BOOL,
    },
)

# These are 0 if a request does not set them, whatever their defaults are.
_ZERO = {
    each.name: 0 for each in options_of(StreamConfig) if each.zero == 0 and each.default not in (0, MISSING)
}


@dataclass(eq=False, repr=False, slots=True)
class StreamRequest:
    """The decoded body of a STREAM.CREATE, STREAM.UPDATE or STREAM.RESTORE request."""

    config: StreamConfig  # as requested: not checked, limits not normalized
    pedantic: bool


def read(body: bytes, table: Struct, strict: bool) -> dict[str, Any]:
    """Return the decoded fields of `body`; if `strict`, refuse unknown fields.

    Raises:
        ApiError: the body is not JSON or has an invalid field (10025).
    """
    try:
        return decode(body, table, strict)
    except JsonFault as fault:
        raise errcodes.INVALID_JSON.error(err=fault) from None


def read_stream(body: bytes, strict: bool) -> StreamRequest:
    """Decode the body of a STREAM.CREATE or STREAM.UPDATE request.

    Raises:
        ApiError: the body is not JSON or has an invalid field (10025).
    """
    given = read(body, STREAM_REQUEST, strict)
    given["persist_mode"] = given.get("persist_mode") or DEFAULT
    config = from_json(StreamConfig, _ZERO | given)
    return StreamRequest(config, given.get("pedantic", False))


def read_restore(body: bytes, name: str, strict: bool) -> StreamRequest:
    """Decode a request to restore the stream `name`; the configuration in it may lack the name.

    Raises:
        ApiError: the body is not JSON or has an invalid field (10025).
    """
    given = read(body, RESTORE_REQUEST, strict).get("config", {})
    config = from_json(StreamConfig, _ZERO | {**given, "name": given.get("name", "") or name})
    return StreamRequest(config, False)
