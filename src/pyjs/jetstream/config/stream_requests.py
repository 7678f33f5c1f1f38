"""What a stream request may hold: fields and kinds for the strict decoder, and the decoded requests.

Knows nothing of limits and conflicts (jetstream/rules/stream.py). Features that are not there yet are read, so that
wrong types get the usual answer, and listed in `StreamRequest.unsupported`.

Source: error texts probed on nats-server 2.15.1; nats.docs "JetStream wire API Reference".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.json_strict import (
    BOOL,
    DURATION,
    INT,
    INT32,
    INT64,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT64,
    JsonFault,
    Kind,
    Struct,
    decode,
    enum,
    struct,
    structs,
)
from pyjs.jetstream.config.stream import StreamConfig, record_of

if TYPE_CHECKING:
    from typing import Any

PLACEMENT = Struct("Placement", {"cluster": STRING, "tags": STRINGS, "preferred": STRING})
EXTERNAL = Struct("ExternalStream", {"api": STRING, "deliver": STRING})
TRANSFORM = Struct("SubjectTransformConfig", {"src": STRING, "dest": STRING})
SOURCE_CONSUMER = Struct("StreamConsumerSource", {"name": STRING, "deliver_subject": STRING})
SOURCE = Struct(
    "StreamSource",
    {
        "name": STRING,
        "opt_start_seq": UINT64,
        "opt_start_time": TIME,
        "filter_subject": STRING,
        "subject_transforms": structs(TRANSFORM, "[]server.SubjectTransformConfig"),
        "external": struct(EXTERNAL),
        "consumer": struct(SOURCE_CONSUMER),
    },
)
REPUBLISH = Struct("RePublish", {"src": STRING, "dest": STRING, "headers_only": BOOL})
CONSUMER_LIMITS = Struct("StreamConsumerLimits", {"inactive_threshold": DURATION, "max_ack_pending": INT})

CONFIG_FIELDS: dict[str, Kind] = {
    "name": STRING,
    "description": STRING,
    "subjects": STRINGS,
    "retention": enum("limits", "interest", "workqueue"),
    "max_consumers": INT,
    "max_msgs": INT64,
    "max_bytes": INT64,
    "max_age": DURATION,
    "max_msgs_per_subject": INT64,
    "max_msg_size": INT32,
    "discard": enum("old", "new"),
    "storage": enum("memory", "file"),
    "num_replicas": INT,
    "no_ack": BOOL,
    "duplicate_window": DURATION,
    "placement": struct(PLACEMENT),
    "mirror": struct(SOURCE),
    "sources": structs(SOURCE),
    "compression": enum("none", "s2", unknown_text="unknown compression algorithm"),
    "first_seq": UINT64,
    "subject_transform": struct(TRANSFORM),
    "republish": struct(REPUBLISH),
    "allow_direct": BOOL,
    "mirror_direct": BOOL,
    "discard_new_per_subject": BOOL,
    "sealed": BOOL,
    "deny_delete": BOOL,
    "deny_purge": BOOL,
    "allow_rollup_hdrs": BOOL,
    "consumer_limits": struct(CONSUMER_LIMITS),
    "allow_msg_ttl": BOOL,
    "subject_delete_marker_ttl": DURATION,
    "allow_msg_counter": BOOL,
    "allow_atomic": BOOL,
    "allow_msg_schedules": BOOL,
    "persist_mode": enum("default", "async"),
    "allow_batched": BOOL,
    "metadata": STRING_MAP,
}
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

# Limits that are 0 in a request that does not name them.
_ZERO = "max_consumers max_msgs max_bytes max_msgs_per_subject max_msg_size num_replicas".split()
COUNTERS, ATOMIC = "message counters are", "atomic batch publish is"
BATCHED, SCHEDULES = "batch publish is", "message schedules are"
_LATER = {
    "allow_msg_counter": COUNTERS,
    "allow_atomic": ATOMIC,
    "allow_batched": BATCHED,
    "allow_msg_schedules": SCHEDULES,
}


@dataclass(eq=False, repr=False, slots=True)
class StreamRequest:
    """A decoded STREAM.CREATE or STREAM.UPDATE body."""

    config: StreamConfig  # as asked for: not checked, limits not normalised
    pedantic: bool
    unsupported: tuple[str, ...]  # "mirrors are" and so on: what the request uses and the server lacks


def read(body: bytes, table: Struct, strict: bool) -> dict[str, Any]:
    """Return the fields that `body` sets.

    Raises:
        ApiError: 10025, the body is not JSON or holds something unknown.
    """
    try:
        return decode(body, table, strict)
    except JsonFault as fault:
        raise errcodes.INVALID_JSON.error(err=fault) from None


def read_stream(body: bytes, strict: bool) -> StreamRequest:
    """Return the stream request in `body`.

    Raises:
        ApiError: 10025, the body is not JSON or holds something unknown.
    """
    given = read(body, STREAM_REQUEST, strict)
    config = record_of(StreamConfig, {"name": "", **dict.fromkeys(_ZERO, 0), **given})
    return StreamRequest(config, given.get("pedantic", False), _unsupported(given))


def _unsupported(given: dict[str, Any]) -> tuple[str, ...]:
    out = [text for name, text in _LATER.items() if given.get(name)]
    if any(each and "consumer" in each for each in (given.get("mirror"), *given.get("sources", ()))):
        out.append("consumers of mirrors and sources are")
    if given.get("persist_mode") == "async":
        out.append("persist mode async is")
    return tuple(out)
