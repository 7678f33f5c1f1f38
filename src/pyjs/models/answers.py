"""The answers of the JetStream API as models.

`parse_answer` returns the model that belongs to the `type` of an answer, or an ErrorResponse for a refusal.

Source: nats.docs "JetStream wire API Reference"; the recordings of nats-server in tests/conformance/recorded. Every
field of the recordings is in these models (tests/unit/models/test_answers.py).
"""

from __future__ import annotations

import json

from pydantic import Field

from pyjs.models.base import Answer, Duration, Time
from pyjs.models.config import ConsumerConfig, ExternalStream, StreamConfig, SubjectTransformConfig

API_PREFIX = "io.nats.jetstream.api.v1."


class ApiError(Answer):
    """The reason why a request was refused, with its codes."""

    code: int = Field(description="As of HTTP: 400, 404, 500, 503.")
    err_code: int = Field(default=0, description="The number of the error.")
    description: str = ""


class ApiAnswer(Answer):
    """The base of all answers."""

    type: str


class ErrorResponse(ApiAnswer):
    """The answer to a refused request of any kind."""

    error: ApiError


class Page(ApiAnswer):
    """The base of the answers that have one page of a list; the page begins at `offset`."""

    total: int
    offset: int
    limit: int


class Peer(Answer):
    """A member of a replicated group."""

    name: str
    current: bool = Field(default=False, description="It has all committed entries, and answers.")
    offline: bool = False
    active: Duration = Field(default=0, description="Since it was heard last.")
    lag: int = Field(default=0, description="Committed entries that it has not confirmed.")
    peer: str = Field(default="", description="A digest of its name.")


class Cluster(Answer):
    """The leader of a stream or consumer and, in a cluster, the other replicas."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: Time | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[Peer] = Field(default_factory=list, description="All but the leader.")


class SequencePair(Answer):
    """A sequence of a consumer, and the corresponding sequence of the stream."""

    consumer_seq: int
    stream_seq: int
    last_active: Time | None = None


class LostData(Answer):
    """The messages that a stream lost to damage."""

    msgs: list[int] | None = None
    bytes: int = 0


class StreamState(Answer):
    """The state of a stream."""

    messages: int
    bytes: int
    first_seq: int
    first_ts: Time
    last_seq: int
    last_ts: Time
    consumer_count: int
    num_subjects: int = 0
    subjects: dict[str, int] = Field(default_factory=dict, description="Messages of each subject.")
    num_deleted: int = 0
    deleted: list[int] = Field(
        default_factory=list, description="Sequences between first and last that are gone."
    )
    lost: LostData | None = None


class SourceInfo(Answer):
    """The progress of a mirror or a source."""

    name: str
    lag: int
    active: Duration = Field(description="Since the origin was last heard of; -1: never.")
    seq: int = 0
    filter_subject: str = ""
    subject_transforms: list[SubjectTransformConfig] = Field(default_factory=list)
    external: ExternalStream | None = None
    error: ApiError | None = None


class StreamInfo(Answer):
    """A stream with its configuration and state."""

    config: StreamConfig
    created: Time
    state: StreamState
    ts: Time | None = Field(default=None, description="When the answer was made.")
    domain: str = ""
    cluster: Cluster | None = None
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = Field(default_factory=list)


class PriorityGroup(Answer):
    """A priority group and its pinned client, if any."""

    group: str
    pinned_client_id: str = ""
    pinned_ts: Time | None = None


class ConsumerInfo(Answer):
    """A consumer with its configuration and state."""

    stream_name: str
    name: str
    created: Time
    config: ConsumerConfig | None = None
    delivered: SequencePair
    ack_floor: SequencePair
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    ts: Time | None = Field(default=None, description="When the answer was made.")
    cluster: Cluster | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Duration = 0
    priority_groups: list[PriorityGroup] = Field(default_factory=list)


class ApiStats(Answer):
    """The numbers of requests to the API, and the API level."""

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class AccountLimits(Answer):
    """The limits of an account; -1 means no limit."""

    max_memory: int
    max_storage: int
    max_streams: int
    max_consumers: int
    max_ack_pending: int
    memory_max_stream_bytes: int
    storage_max_stream_bytes: int
    max_bytes_required: bool


class Tier(Answer):
    """The usage of an account, in one tier or in total; sizes are in bytes."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits | None = None


class StoredMsg(Answer):
    """A stored message; `data` and `hdrs` are in base64."""

    subject: str
    seq: int
    data: str = ""
    hdrs: str = ""
    time: Time


# -- one class for each type, in the order of the API ------------------------------------------------------------


class AccountInfoResponse(ApiAnswer, Tier):
    """The answer to INFO: the usage and the limits of the account."""

    domain: str = ""
    api: ApiStats
    tiers: dict[str, Tier] = Field(default_factory=dict)


class StreamCreateResponse(ApiAnswer, StreamInfo):
    """The answer to STREAM.CREATE and STREAM.UPDATE: the stream after the request."""

    did_create: bool = False


class StreamInfoResponse(Page, StreamInfo):
    """The answer to STREAM.INFO: the stream and, on request, a page of its subjects."""


class StreamNamesResponse(Page):
    """The answer to STREAM.NAMES: a page of the names of streams."""

    streams: list[str] | None = None


class StreamListResponse(Page):
    """The answer to STREAM.LIST: a page of streams."""

    streams: list[StreamInfo] | None = None
    missing: list[str] = Field(default_factory=list)
    offline: dict[str, str] = Field(default_factory=dict)


class StreamPurgeResponse(ApiAnswer):
    """The answer to STREAM.PURGE: the number of removed messages."""

    success: bool
    purged: int


class StreamMsgGetResponse(ApiAnswer):
    """The answer to STREAM.MSG.GET: the message."""

    message: StoredMsg


class SuccessResponse(ApiAnswer):
    """An answer that only confirms success. The answer to an unpin request does not have the field `success`."""

    success: bool = True


class StreamRestoreResponse(ApiAnswer):
    """The answer to STREAM.RESTORE: the subject for the chunks of the snapshot."""

    deliver_subject: str


class StreamSnapshotResponse(ApiAnswer):
    """The answer to STREAM.SNAPSHOT: the configuration and the state of the stream."""

    config: StreamConfig
    state: StreamState


class ConsumerResponse(ApiAnswer, ConsumerInfo):
    """The answer to CONSUMER.CREATE and CONSUMER.INFO: the consumer."""


class ConsumerResetResponse(ApiAnswer, ConsumerInfo):
    """The answer to CONSUMER.RESET: the consumer, and the sequence at which it continues."""

    reset_seq: int


class ConsumerNamesResponse(Page):
    """The answer to CONSUMER.NAMES: a page of the names of consumers."""

    consumers: list[str] | None = None


class ConsumerListResponse(Page):
    """The answer to CONSUMER.LIST: a page of consumers."""

    consumers: list[ConsumerInfo] | None = None
    missing: list[str] = Field(default_factory=list)
    offline: dict[str, str] = Field(default_factory=dict)


class ConsumerPauseResponse(ApiAnswer):
    """The answer to CONSUMER.PAUSE: whether the consumer is paused, and until when."""

    paused: bool
    pause_until: Time
    pause_remaining: Duration = 0


class PubAck(Answer):
    """The answer to a publish into a stream, or the error that refused it."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    domain: str = ""
    val: str = ""  # the value of a counter
    batch: str = ""  # set only in the answer to the last message of a batch
    count: int = 0  # number of messages in that batch
    error: ApiError | None = None


ANSWERS: dict[str, type[ApiAnswer]] = {
    "account_info_response": AccountInfoResponse,
    "stream_create_response": StreamCreateResponse,
    "stream_update_response": StreamCreateResponse,
    "stream_info_response": StreamInfoResponse,
    "stream_names_response": StreamNamesResponse,
    "stream_list_response": StreamListResponse,
    "stream_delete_response": SuccessResponse,
    "stream_purge_response": StreamPurgeResponse,
    "stream_msg_get_response": StreamMsgGetResponse,
    "stream_msg_delete_response": SuccessResponse,
    "stream_snapshot_response": StreamSnapshotResponse,
    "stream_restore_response": StreamRestoreResponse,
    "stream_leader_stepdown_response": SuccessResponse,
    "stream_remove_peer_response": SuccessResponse,
    "stream_cancel_move_response": SuccessResponse,
    "stream_evacuate_peer_response": SuccessResponse,
    "consumer_create_response": ConsumerResponse,
    "consumer_info_response": ConsumerResponse,
    "consumer_names_response": ConsumerNamesResponse,
    "consumer_list_response": ConsumerListResponse,
    "consumer_delete_response": SuccessResponse,
    "consumer_pause_response": ConsumerPauseResponse,
    "consumer_reset_response": ConsumerResetResponse,
    "consumer_unpin_response": SuccessResponse,
    "consumer_leader_stepdown_response": SuccessResponse,
}


def parse_answer(data: bytes | str) -> ApiAnswer:
    """Return the answer in `data`, as a model of its type or, if it is a refusal, as an ErrorResponse.

    Raises:
        ValueError: `data` is not an answer of the JetStream API, or has an unknown type.
        pydantic.ValidationError: a field is invalid.
    """
    given = json.loads(data)
    kind = given.get("type") if isinstance(given, dict) else None
    model = ANSWERS.get(kind.removeprefix(API_PREFIX)) if isinstance(kind, str) else None
    if model is None:
        raise ValueError(f"no answer of the JetStream API: its type is {kind!r}")
    return (ErrorResponse if "error" in given else model).parse(data)
