"""The JetStream API errors: one line each, with number, code (like an HTTP status) and message.

Other modules raise these errors, for example by `raise errcodes.STREAM_NOT_FOUND.error()`. They create an ApiError
themselves only from an error that another server reports. This module knows nothing of its callers.
The numbers are those of nats-server; the numbers of errors that only pyjs-server has start at 20001.

Source: the error table of nats-server 2.15 (`server/errors.json`), messages compared in tests/conformance.
"""

from __future__ import annotations

from pyjs.base.errors import StoreFailed


class ApiError(Exception):
    """Raised if a request is refused. It becomes the `error` object of the response or PubAck."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})")
        self.code = code  # like an HTTP status: 400, 404, 500, 503
        self.err_code = err_code
        self.description = description

    def as_json(self) -> dict[str, int | str]:
        """Return the error object, with its keys in the order of nats-server."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class LeaderChanged(ApiError):
    """Raised if this server no longer leads the stream of a request, so that another server may answer it."""

    def __init__(self, *, is_unknown: bool = False) -> None:
        super().__init__(503, 10008, "JetStream system temporarily unavailable")
        self.is_unknown = is_unknown  # the request may have been carried out or not


class ErrorCode:
    """One row of the table of errors: status code, error code, and a template for the message."""

    __slots__ = ("code", "err_code", "template")

    def __init__(self, err_code: int, code: int, template: str) -> None:
        self.err_code = err_code
        self.code = code
        self.template = template  # a str.format template

    def error(self, **values: object) -> ApiError:
        """Return the error to raise; `values` fill the template.

        If `err` is a StoreFailed, only its reason is used, since clients must not see its path.
        """
        failure = values.get("err")
        if isinstance(failure, StoreFailed):
            values["err"] = _as_go_says(failure.reason)
        return ApiError(self.code, self.err_code, self.template.format(**values))

    def detailed(self, why: str) -> ApiError:
        """Return the error to raise, with `why` appended to its message."""
        return ApiError(self.code, self.err_code, f"{self.template}: {why}")

    def raise_if(self, wrong: object, **values: object) -> None:
        """Raise the error if `wrong` is true; `values` fill the template."""
        if wrong:
            raise self.error(**values)


def too_many_waiting() -> ApiError:
    """Return the error for a request beyond the limit of waiting requests."""
    return CLUSTER_NOT_AVAILABLE.detailed("too many requests wait")


def _as_go_says(reason: str) -> str:
    """Return an operating-system error message as Go writes it, with a lower-case first letter.

    A message that begins with an acronym is not changed.
    """
    return reason[:1].lower() + reason[1:] if reason[1:2].islower() else reason


_code = ErrorCode
ACCOUNT_RESOURCES_EXCEEDED = _code(10002, 400, "resource limits exceeded for account")
BAD_REQUEST = _code(10003, 400, "bad request")
CLUSTER_NO_PEERS = _code(10005, 400, "{err}")
CLUSTER_NOT_AVAILABLE = _code(10008, 503, "JetStream system temporarily unavailable")
CLUSTER_REQUIRED = _code(10010, 503, "JetStream clustering support required")
CONSUMER_CREATE = _code(10012, 500, "{err}")
CONSUMER_NAME_EXIST = _code(10013, 400, "consumer name already in use")
CONSUMER_NOT_FOUND = _code(10014, 404, "consumer not found")
SNAPSHOT_DELIVER_SUBJECT_INVALID = _code(10015, 400, "deliver subject not valid")
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT = _code(
    10017, 400, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NAME_NOT_SET = _code(
    10018, 400, "consumer expected to be durable but a durable name was not set"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = _code(
    10020, 400, "consumer expected to be ephemeral but a durable name was set in request"
)
STREAM_EXTERNAL_API_OVERLAP = _code(
    10021, 400, "stream external api prefix {prefix} must not overlap with {subject}"
)
STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS = _code(
    10022, 400, "stream external delivery prefix {prefix} overlaps with stream subject {subject}"
)
INSUFFICIENT_RESOURCES = _code(10023, 503, "insufficient resources")
STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ = _code(
    10024, 400, "stream external delivery prefix {prefix} must not contain wildcards"
)
INVALID_JSON = _code(10025, 400, "invalid JSON: {err}")
MAXIMUM_CONSUMERS_LIMIT = _code(10026, 400, "maximum consumers limit reached")
MAXIMUM_STREAMS_LIMIT = _code(10027, 400, "maximum number of streams reached")
MEMORY_RESOURCES_EXCEEDED = _code(10028, 500, "insufficient memory resources available")
MIRROR_CONSUMER_SETUP_FAILED = _code(10029, 500, "{err}")
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = _code(10030, 400, "stream mirror must have max message size >= source")
MIRROR_WITH_SOURCES = _code(10031, 400, "stream mirrors can not also contain other sources")
MIRROR_WITH_SUBJECTS = _code(10034, 400, "stream mirrors can not contain subjects")
NO_ACCOUNT = _code(10035, 503, "account not found")
NO_MESSAGE_FOUND = _code(10037, 404, "no message found")
NOT_EMPTY_REQUEST = _code(10038, 400, "expected an empty request payload")
NOT_ENABLED_FOR_ACCOUNT = _code(10039, 503, "JetStream not enabled for account")
CLUSTER_PEER_NOT_MEMBER = _code(10040, 400, "peer not a member")
SEQUENCE_NOT_FOUND = _code(10043, 400, "sequence {seq} not found")
CLUSTER_SERVER_NOT_MEMBER = _code(10044, 400, "server is not a member of the cluster")
SOURCE_CONSUMER_SETUP_FAILED = _code(10045, 500, "{err}")
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = _code(10046, 400, "stream source must have max message size >= target")
STORAGE_RESOURCES_EXCEEDED = _code(10047, 500, "insufficient storage resources available")
STREAM_CREATE = _code(10049, 500, "{err}")
STREAM_DELETE = _code(10050, 500, "{err}")
STREAM_GENERAL = _code(10051, 500, "{err}")
STREAM_INVALID_CONFIG = _code(10052, 500, "{err}")
STREAM_MESSAGE_EXCEEDS_MAXIMUM = _code(10054, 400, "message size exceeds maximum allowed")
STREAM_MIRROR_NOT_UPDATABLE = _code(10055, 400, "stream mirror configuration can not be updated")
STREAM_MISMATCH = _code(10056, 400, "stream name in subject does not match request")
STREAM_MSG_DELETE_FAILED = _code(10057, 500, "{err}")
STREAM_NAME_EXIST = _code(10058, 400, "stream name already in use with a different configuration")
STREAM_NOT_FOUND = _code(10059, 404, "stream not found")
STREAM_NOT_MATCH = _code(10060, 400, "expected stream does not match")
STREAM_RESTORE = _code(10062, 500, "restore failed: {err}")
STREAM_SUBJECT_OVERLAP = _code(10065, 400, "subjects overlap with an existing stream")
STREAM_UPDATE = _code(10069, 500, "{err}")
STREAM_WRONG_LAST_MSG_ID = _code(10070, 400, "wrong last msg ID: {id}")
STREAM_WRONG_LAST_SEQUENCE = _code(10071, 400, "wrong last sequence: {seq}")
STREAM_REPLICAS_NOT_SUPPORTED = _code(10074, 500, "replicas > 1 not supported in non-clustered mode")
PEER_REMAP_FAILED = _code(10075, 503, "peer remap failed")
STREAM_STORE_FAILED = _code(10077, 503, "{err}")
CONSUMER_DELIVER_TO_WILDCARDS = _code(10079, 400, "consumer deliver subject has wildcards")
CONSUMER_PUSH_MAX_WAITING = _code(10080, 400, "consumer in push mode can not set max waiting")
CONSUMER_DELIVER_CYCLE = _code(10081, 400, "consumer deliver subject forms a cycle")
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = _code(
    10082, 400, "consumer requires ack policy for max ack pending"
)
CONSUMER_SMALL_HEARTBEAT = _code(10083, 400, "consumer idle heartbeat needs to be >= 100ms")
CONSUMER_PULL_REQUIRES_ACK = _code(
    10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
CONSUMER_PULL_WITH_RATE_LIMIT = _code(10086, 400, "consumer in pull mode can not have rate limit set")
CONSUMER_HB_REQUIRES_PUSH = _code(10088, 400, "consumer idle heartbeat requires a push based consumer")
CONSUMER_FC_REQUIRES_PUSH = _code(10089, 400, "consumer flow control requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_PUSH = _code(10090, 400, "consumer direct requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_EPHEMERAL = _code(10091, 400, "consumer direct requires an ephemeral consumer")
CONSUMER_INVALID_POLICY = _code(10094, 400, "{err}")
CONSUMER_INVALID_SAMPLING = _code(10095, 400, "failed to parse consumer sampling configuration: {err}")
STREAM_HEADER_EXCEEDS_MAXIMUM = _code(10097, 400, "header size exceeds maximum allowed of 64k")
CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = _code(10098, 400, "workqueue stream requires explicit ack")
CONSUMER_WQ_MULTIPLE_UNFILTERED = _code(
    10099, 400, "multiple non-filtered consumers not allowed on workqueue stream"
)
CONSUMER_WQ_CONSUMER_NOT_UNIQUE = _code(10100, 400, "filtered consumer not unique on workqueue stream")
CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL = _code(10101, 400, "consumer must be deliver all on workqueue stream")
CONSUMER_NAME_TOO_LONG = _code(10102, 400, "consumer name is too long, maximum allowed is {max}")
CONSUMER_DESCRIPTION_TOO_LONG = _code(
    10107, 400, "consumer description is too long, maximum allowed is {max}"
)
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS = _code(
    10108, 400, "consumer with flow control also needs heartbeats"
)
STREAM_SEALED = _code(10109, 400, "invalid operation on sealed stream")
STREAM_PURGE_FAILED = _code(10110, 500, "{err}")
STREAM_ROLLUP_FAILED = _code(10111, 500, "{err}")
CONSUMER_INVALID_DELIVER_SUBJECT = _code(10112, 400, "invalid push consumer deliver subject")
STREAM_MAX_BYTES_REQUIRED = _code(10113, 400, "account requires a stream config to have max bytes set")
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = _code(10115, 400, "consumer max request expires needs to be >= 1ms")
CONSUMER_MAX_DELIVER_BACKOFF = _code(10116, 400, "max deliver is required to be > length of backoff values")
STREAM_OFFLINE = _code(10118, 500, "stream is offline")
CONSUMER_OFFLINE = _code(10119, 500, "consumer is offline")
NO_LIMITS = _code(10120, 400, "no JetStream default or applicable tiered limit present")
CONSUMER_MAX_PENDING_ACK_EXCESS = _code(
    10121, 400, "consumer max ack pending exceeds system limit of {limit}"
)
STREAM_MAX_STREAM_BYTES_EXCEEDED = _code(
    10122, 400, "stream max bytes exceeds account limit max stream bytes"
)
STREAM_MOVE_AND_SCALE = _code(10123, 400, "can not move and scale a stream in a single update")
STREAM_MOVE_IN_PROGRESS = _code(10124, 400, "stream move already in progress")
CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = _code(
    10125, 400, "consumer max request batch exceeds server limit of {limit}"
)
CONSUMER_REPLICAS_EXCEEDS_STREAM = _code(10126, 400, "consumer config replica count exceeds parent stream")
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS = _code(10127, 400, "Consumer name can not contain path separators")
STREAM_NAME_CONTAINS_PATH_SEPARATORS = _code(10128, 400, "Stream name can not contain path separators")
STREAM_MOVE_NOT_IN_PROGRESS = _code(10129, 400, "stream reconfiguration not in progress")
STREAM_NAME_EXIST_RESTORE_FAILED = _code(10130, 400, "stream name already in use, cannot restore")
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = _code(
    10131, 400, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = _code(
    10132, 400, "Consumer Durable and Name have to be equal if both are provided"
)
REPLICAS_COUNT_CANNOT_BE_NEGATIVE = _code(10133, 400, "replicas count cannot be negative")
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM = _code(
    10134, 400, "consumer config replicas must match interest retention stream's replicas"
)
CONSUMER_METADATA_LENGTH = _code(10135, 400, "consumer metadata exceeds maximum size of {limit}")
CONSUMER_DUPLICATE_FILTER_SUBJECTS = _code(
    10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = _code(
    10137, 400, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_SUBJECT_FILTERS = _code(10138, 400, "consumer subject filters cannot overlap")
CONSUMER_EMPTY_FILTER = _code(10139, 400, "consumer filter in FilterSubjects cannot be empty")
SOURCE_DUPLICATE_DETECTED = _code(10140, 400, "duplicate source configuration detected")
SOURCE_INVALID_STREAM_NAME = _code(10141, 400, "sourced stream name is invalid")
MIRROR_INVALID_STREAM_NAME = _code(10142, 400, "mirrored stream name is invalid")
MIRROR_WITH_FIRST_SEQ = _code(10143, 400, "stream mirrors can not have first sequence configured")
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED = _code(
    10144, 400, "source with multiple subject transforms cannot also have a single subject filter"
)
SOURCE_INVALID_SUBJECT_FILTER = _code(10145, 400, "source transform source: {err}")
SOURCE_INVALID_TRANSFORM_DESTINATION = _code(10146, 400, "source transform: {err}")
SOURCE_OVERLAPPING_SUBJECT_FILTERS = _code(10147, 400, "source filters can not overlap")
CONSUMER_ALREADY_EXISTS = _code(10148, 400, "consumer already exists")
CONSUMER_DOES_NOT_EXIST = _code(10149, 400, "consumer does not exist")
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED = _code(
    10150, 400, "mirror with multiple subject transforms cannot also have a single subject filter"
)
MIRROR_INVALID_SUBJECT_FILTER = _code(10151, 400, "mirror transform source: {err}")
MIRROR_OVERLAPPING_SUBJECT_FILTERS = _code(10152, 400, "mirror subject filters can not overlap")
CONSUMER_INACTIVE_THRESHOLD_EXCESS = _code(
    10153, 400, "consumer inactive threshold exceeds system limit of {limit}"
)
MIRROR_INVALID_TRANSFORM_DESTINATION = _code(10154, 400, "mirror transform: {err}")
STREAM_TRANSFORM_INVALID_SOURCE = _code(10155, 400, "stream transform source: {err}")
STREAM_TRANSFORM_INVALID_DESTINATION = _code(10156, 400, "stream transform: {err}")
PEDANTIC = _code(10157, 400, "pedantic mode: {err}")
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = _code(
    10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
CONSUMER_INVALID_PRIORITY_GROUP = _code(
    10160, 400, "Provided priority group does not exist for this consumer"
)
CONSUMER_EMPTY_GROUP_NAME = _code(10161, 400, "Group name cannot be an empty string")
CONSUMER_INVALID_GROUP_NAME = _code(
    10162, 400, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"
)
STREAM_WRONG_LAST_SEQUENCE_CONSTANT = _code(10164, 400, "wrong last sequence")
MESSAGE_TTL_INVALID = _code(10165, 400, "invalid per-message TTL")
MESSAGE_TTL_DISABLED = _code(10166, 400, "per-message TTL is disabled")
MESSAGE_INCR_DISABLED = _code(10168, 400, "message counters is disabled")
MESSAGE_INCR_MISSING = _code(10169, 400, "message counter increment is missing")
MESSAGE_INCR_PAYLOAD = _code(10170, 400, "message counter has payload")
MESSAGE_INCR_INVALID = _code(10171, 400, "message counter increment is invalid")
MESSAGE_COUNTER_BROKEN = _code(10172, 400, "message counter is broken")
MIRROR_WITH_COUNTERS = _code(10173, 400, "stream mirrors can not also calculate counters")
ATOMIC_PUBLISH_DISABLED = _code(10174, 400, "atomic publish is disabled")
ATOMIC_PUBLISH_MISSING_SEQ = _code(10175, 400, "atomic publish sequence is missing")
ATOMIC_PUBLISH_INCOMPLETE_BATCH = _code(10176, 400, "atomic publish batch is incomplete")
ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH = _code(
    10177, 400, "atomic publish unsupported header used: {header}"
)
CONSUMER_PUSH_WITH_PRIORITY_GROUP = _code(10178, 400, "priority groups can not be used with push consumers")
ATOMIC_PUBLISH_INVALID_BATCH_ID = _code(10179, 400, "atomic publish batch ID is invalid")
CONSUMER_ACK_WAIT_NEGATIVE = _code(10183, 400, "consumer ack wait needs to be positive")
CONSUMER_BACKOFF_NEGATIVE = _code(10184, 400, "consumer backoff needs to be positive")
REQUIRED_API_LEVEL = _code(10185, 412, "JetStream minimum api level required")
MIRROR_WITH_MSG_SCHEDULES = _code(10186, 400, "stream mirrors can not also schedule messages")
SOURCE_WITH_MSG_SCHEDULES = _code(10187, 400, "stream source can not also schedule messages")
MESSAGE_SCHEDULES_DISABLED = _code(10188, 400, "message schedules is disabled")
MESSAGE_SCHEDULES_PATTERN_INVALID = _code(10189, 400, "message schedules pattern is invalid")
MESSAGE_SCHEDULES_TARGET_INVALID = _code(10190, 400, "message schedules target is invalid")
MESSAGE_SCHEDULES_TTL_INVALID = _code(10191, 400, "message schedules invalid per-message TTL")
MESSAGE_SCHEDULES_ROLLUP_INVALID = _code(10192, 400, "message schedules invalid rollup")
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = _code(
    10193, 400, "missing sequence for expected last sequence per subject"
)
STREAM_OFFLINE_REASON = _code(10194, 500, "stream is offline: {err}")
CONSUMER_OFFLINE_REASON = _code(10195, 500, "consumer is offline: {err}")
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = _code(
    10196, 400, "consumer can not have priority groups when policy is none"
)
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE = _code(
    10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none"
)
MIRROR_WITH_ATOMIC_PUBLISH = _code(10198, 400, "stream mirrors can not also use atomic publishing")
ATOMIC_PUBLISH_TOO_LARGE_BATCH = _code(10199, 400, "atomic publish batch is too large: {size}")
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT = _code(10200, 400, "atomic publish batch commit is invalid")
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE = _code(
    10201, 400, "atomic publish batch contains duplicate message id"
)
MESSAGE_SCHEDULES_SOURCE_INVALID = _code(10203, 400, "message schedules source is invalid")
CONSUMER_INVALID_RESET = _code(10204, 400, "invalid reset: {err}")
BATCH_PUBLISH_DISABLED = _code(10205, 400, "batch publish is disabled")
BATCH_PUBLISH_INVALID_PATTERN = _code(10206, 400, "batch publish pattern is invalid")
BATCH_PUBLISH_INVALID_BATCH_ID = _code(10207, 400, "batch publish ID is invalid")
BATCH_PUBLISH_UNKNOWN_BATCH_ID = _code(10208, 400, "batch publish ID unknown")
MIRROR_WITH_BATCH_PUBLISH = _code(10209, 400, "stream mirrors can not also use batch publishing")
BATCH_PUBLISH_TOO_MANY_INFLIGHT = _code(10211, 429, "batch publish too many inflight")
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT = _code(10210, 429, "atomic publish too many inflight")
MESSAGE_SCHEDULES_SCHEDULER_INVALID = _code(10212, 400, "message schedules invalid scheduler")
MIRROR_DURABLE_CONSUMER_CFG_INVALID = _code(10213, 400, "stream mirror consumer config is invalid")
MIRROR_CONSUMER_REQUIRES_ACK_FC = _code(10214, 400, "stream mirror consumer requires flow control ack policy")
SOURCE_DURABLE_CONSUMER_CFG_INVALID = _code(10215, 400, "stream source consumer config is invalid")
SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED = _code(10216, 400, "duplicate stream source consumer detected")
SOURCE_CONSUMER_REQUIRES_ACK_FC = _code(10217, 400, "stream source consumer requires flow control ack policy")
CONSUMER_ACK_FC_REQUIRES_PUSH = _code(10218, 400, "flow control ack policy requires a push based consumer")
CONSUMER_ACK_FC_REQUIRES_FC = _code(10219, 400, "flow control ack policy requires flow control")
CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING = _code(
    10220, 400, "flow control ack policy requires max ack pending"
)
CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT = _code(10221, 400, "flow control ack policy requires unset ack wait")
CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER = _code(
    10222, 400, "flow control ack policy requires unset max deliver"
)
MESSAGE_SCHEDULES_TIME_ZONE_INVALID = _code(10223, 400, "message schedules time zone is invalid")
CONSUMER_STREAM_IDENTITY_MISMATCH = _code(10225, 400, "consumer's stream identity does not match: {msg}")
STREAM_RECONFIGURE_IN_PROGRESS = _code(10226, 400, "stream reconfiguration already in progress")
MESSAGE_SOURCE_HDR_NOT_ALLOWED = _code(10227, 400, "message stream source header is not allowed")

# Errors that only pyjs-server has.
BULK_NOT_ALLOWED = _code(
    20001, 503, "stream {stream} does not allow bulk reads: set allow_direct in its configuration"
)
BULK_OTHER_STREAM = _code(
    20002,
    404,
    "stream {stream} was created {created}, not {wanted}: it was re-created; read it from its first message",
)
BULK_BAD_REQUEST = _code(20003, 400, "bad bulk read: {err}")
STREAM_MESSAGES_LOST = _code(
    20004,
    503,
    "the outcome depends on lost messages: start the server that has them, or request SERVER.ACCEPT_LOSS",
)
DEAD_LETTERS_CONFIG = _code(20005, 400, "dead letters: {err}")
DEAD_LETTERS_REQUEST = _code(20006, 400, "replay of dead letters: {err}")


def invalid_config(text: str) -> ApiError:
    """Return the error for an invalid configuration.

    Its code is the same for streams and consumers, as on nats-server.
    """
    return STREAM_INVALID_CONFIG.error(err=text)


def refuse_config(wrong: object, text: str) -> None:
    """Raise the error of `invalid_config` with `text` if `wrong` is true."""
    STREAM_INVALID_CONFIG.raise_if(wrong, err=text)
