"""Rules for consumer configurations: defaults, checks in nats-server's order, and the rules of updates.

This module works on values only: the stream and the limits are passed as StreamConfig and ConsumerLimits. The order
of the checks is part of the interface: a request with two violations must get the same error as from nats-server.

Source: order and error messages probed on nats-server 2.15.1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import ZERO_TIME_NS, duration_text
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.declared import changed
from pyjs.jetstream.config.level import META_LEVEL, META_REQUIRED_LEVEL, META_VERSION
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.names import is_valid_name
from pyjs.subjects.overlap import at_once, first_covered
from pyjs.subjects.tokens import is_subset, is_valid_subject, subject_has_wildcard

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.subjects.overlap import SubjectTree

NS_PER_MS = 1_000_000
DESCRIPTION_SIZE_MAX = 4096
METADATA_SIZE_MAX = 128 * 1024
NAME_SIZE_MAX = 255
MAX_WAITING_DEFAULT = 512
ACK_WAIT_DEFAULT_NS = 30_000 * NS_PER_MS
ACK_PENDING_DEFAULT = 1000
INACTIVE_THRESHOLD_DEFAULT_NS = 5_000 * NS_PER_MS
PINNED_TIMEOUT_DEFAULT_NS = 120_000 * NS_PER_MS
HEARTBEAT_MIN_NS = 100 * NS_PER_MS
NOT_SEARCHED = "not searched"  # differs from every valid subject, since it has a blank
_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")


class ConsumerLimits(NamedTuple):
    """Limits of the server and the account for consumers; 0 means no limit."""

    server_max_ack_pending: int = 0
    server_max_request_batch: int = 0
    account_max_ack_pending: int = 0


def normalised(
    config: ConsumerConfig, stream: StreamConfig, limits: ConsumerLimits, pedantic: bool = False
) -> ConsumerConfig:
    """Return `config` with invalid limits corrected and defaults filled in.

    Raises:
        ApiError: 10157, if `pedantic` is set and a value would have to be corrected.
    """
    changes: dict[str, Any] = {}
    if config.max_deliver == 0 or config.max_deliver < -1:
        errcodes.PEDANTIC.raise_if(pedantic and config.max_deliver < -1, err="max_deliver must be set to -1")
        changes["max_deliver"] = -1
    config = _without_negatives(config, pedantic)
    if not config.push and config.max_waiting == 0:
        changes["max_waiting"] = MAX_WAITING_DEFAULT
    if config.ack_wait_ns == 0 and config.ack_policy in ("explicit", "all"):
        changes["ack_wait_ns"] = ACK_WAIT_DEFAULT_NS
    if config.backoff_ns:
        if pedantic and changes.get("ack_wait_ns", config.ack_wait_ns) != config.backoff_ns[0]:
            raise errcodes.PEDANTIC.error(err="first backoff value has to equal batch AckWait")
        changes["ack_wait_ns"] = config.backoff_ns[0]
    if config.max_ack_pending == 0:
        changes["max_ack_pending"] = _max_ack_pending(config, stream, limits, pedantic)
    if config.inactive_threshold_ns == 0:
        changes["inactive_threshold_ns"] = _inactive_threshold(stream, pedantic)
    if not config.push and config.max_batch == 0 and limits.server_max_request_batch > 0:
        if pedantic:
            raise errcodes.PEDANTIC.error(
                err="max_request_batch must be set if it's JetStream limits are set"
            )
        changes["max_batch"] = limits.server_max_request_batch
    if config.priority_policy == "pinned_client" and config.priority_timeout_ns == 0:
        changes["priority_timeout_ns"] = PINNED_TIMEOUT_DEFAULT_NS
    if config.ack_policy == "flow_control" and not pedantic:
        changes |= {"flow_control": True, "idle_heartbeat_ns": 1000 * NS_PER_MS}
    return changed(config, **changes)


_NEGATIVES = (
    ("max_waiting", "max_waiting must not be negative"),
    ("max_ack_pending", "max_ack_pending must be set to -1"),
    ("max_batch", "max_batch must not be negative"),
    ("max_expires_ns", "max_expires must not be negative"),
    ("max_bytes", "max_bytes must not be negative"),
    ("idle_heartbeat_ns", "idle_heartbeat must not be negative"),
    ("inactive_threshold_ns", "inactive_threshold must not be negative"),
    ("priority_timeout_ns", "priority_timeout must not be negative"),
)


def _without_negatives(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    changes: dict[str, Any] = {}
    for attribute, text in _NEGATIVES:
        unset = -1 if attribute == "max_ack_pending" else 0
        if getattr(config, attribute) < unset:
            errcodes.PEDANTIC.raise_if(pedantic, err=text)
            changes[attribute] = unset
    return changed(config, **changes) if changes else config


def _max_ack_pending(
    config: ConsumerConfig, stream: StreamConfig, limits: ConsumerLimits, pedantic: bool
) -> int:
    if stream.consumer_limits.max_ack_pending:
        if pedantic:
            raise errcodes.PEDANTIC.error(
                err="max_ack_pending must be set if it's configured in stream limits"
            )
        return stream.consumer_limits.max_ack_pending
    if config.ack_policy == "none":
        return 0
    allowed = (limits.server_max_ack_pending, limits.account_max_ack_pending)
    return min([ACK_PENDING_DEFAULT, *(limit for limit in allowed if limit > 0)])


def _inactive_threshold(stream: StreamConfig, pedantic: bool) -> int:
    if stream.consumer_limits.inactive_threshold_ns > 0 and pedantic:
        raise errcodes.PEDANTIC.error(
            err="inactive_threshold must be set if it's configured in stream limits"
        )
    return max(stream.consumer_limits.inactive_threshold_ns, 0)


def mortal(config: ConsumerConfig, ephemeral: bool = False) -> ConsumerConfig:
    """Return `config` with the default inactive_threshold, if the consumer is ephemeral and the field is not set.

    If `ephemeral` is set, a durable consumer gets the default too. This is not a part of `normalised`, since
    nats-server compares a repeated request with the stored configuration before it sets this default.
    """
    if (config.durable and not ephemeral) or config.inactive_threshold_ns:
        return config
    return changed(config, inactive_threshold_ns=INACTIVE_THRESHOLD_DEFAULT_NS)


def search_filters(config: ConsumerConfig) -> Generator[None, None, str | None]:
    """Return the first valid filter that another filter covers, or None; yield between steps."""
    return (yield from first_covered(each for each in config.filters if is_valid_subject(each.encode())))


def check(
    config: ConsumerConfig, stream: StreamConfig, limits: ConsumerLimits, covered: str | None = NOT_SEARCHED
) -> None:
    """Refuse an invalid `config`, which must be normalised; `covered` is the result of `search_filters`.

    Raises:
        ApiError: the first violation, in nats-server's order of the checks.
    """
    _check_name_and_replicas(config, stream)
    _check_acks(config)
    if len(config.description) > DESCRIPTION_SIZE_MAX:
        raise errcodes.CONSUMER_DESCRIPTION_TOO_LONG.error(max=DESCRIPTION_SIZE_MAX)
    if config.push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, limits)
    _check_limits(config, stream, limits)
    if config.direct:
        errcodes.CONSUMER_DIRECT_REQUIRES_PUSH.raise_if(not config.push)
        errcodes.CONSUMER_DIRECT_REQUIRES_EPHEMERAL.raise_if(config.durable)
    _check_filters(config, covered)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and not config.idle_heartbeat_ns:
        raise errcodes.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS.error()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errcodes.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH.error()
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > METADATA_SIZE_MAX:
        raise errcodes.CONSUMER_METADATA_LENGTH.error(limit=f"{METADATA_SIZE_MAX // 1024}KB")
    _check_priorities(config)


def _check_name_and_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.name and not is_valid_name(config.name):
        raise errcodes.invalid_config("consumer name can not contain '.', '*', '>', '\\', '/'")
    if config.durable_name and not is_valid_name(config.durable_name):
        raise errcodes.invalid_config("consumer durable name can not contain '.', '*', '>', '\\', '/'")
    if config.num_replicas > 0 and config.num_replicas > stream.num_replicas:
        raise errcodes.CONSUMER_REPLICAS_EXCEEDS_STREAM.error()
    errcodes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.raise_if(config.num_replicas < 0)
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise errcodes.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM.error()


def _check_acks(config: ConsumerConfig) -> None:
    errcodes.CONSUMER_BACKOFF_NEGATIVE.raise_if(any(wait < 0 for wait in config.backoff_ns))
    errcodes.CONSUMER_ACK_WAIT_NEGATIVE.raise_if(config.ack_wait_ns < 0)
    if config.ack_policy == "flow_control":
        _check_flow_control_acks(config)
    if config.backoff_ns and config.max_deliver != -1 and len(config.backoff_ns) > config.max_deliver:
        raise errcodes.CONSUMER_MAX_DELIVER_BACKOFF.error()


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    errcodes.CONSUMER_ACK_FC_REQUIRES_PUSH.raise_if(not config.push)
    errcodes.CONSUMER_ACK_FC_REQUIRES_FC.raise_if(not config.flow_control)
    if config.idle_heartbeat_ns != 1000 * NS_PER_MS:
        raise errcodes.invalid_config("flow control ack policy heartbeat needs to be 1s")
    errcodes.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING.raise_if(config.max_ack_pending <= 0)
    errcodes.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT.raise_if(config.ack_wait_ns or config.backoff_ns)
    errcodes.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER.raise_if(config.max_deliver > 0)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    deliver = config.deliver_subject.encode()
    errcodes.CONSUMER_DELIVER_TO_WILDCARDS.raise_if(subject_has_wildcard(deliver))
    errcodes.CONSUMER_INVALID_DELIVER_SUBJECT.raise_if(not is_valid_subject(deliver))
    if any(is_subset(deliver, subject.encode()) for subject in stream.subjects):
        raise errcodes.CONSUMER_DELIVER_CYCLE.error()
    errcodes.CONSUMER_PUSH_MAX_WAITING.raise_if(config.max_waiting != 0)
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errcodes.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED.error()
    errcodes.CONSUMER_SMALL_HEARTBEAT.raise_if(0 < config.idle_heartbeat_ns < HEARTBEAT_MIN_NS)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, limits: ConsumerLimits) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise errcodes.CONSUMER_PULL_REQUIRES_ACK.error()
    errcodes.CONSUMER_PULL_WITH_RATE_LIMIT.raise_if(config.rate_limit_bps)
    errcodes.CONSUMER_HB_REQUIRES_PUSH.raise_if(config.idle_heartbeat_ns)
    errcodes.CONSUMER_FC_REQUIRES_PUSH.raise_if(config.flow_control)
    errcodes.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL.raise_if(0 < config.max_expires_ns < NS_PER_MS)
    if 0 < limits.server_max_request_batch < config.max_batch:
        raise errcodes.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED.error(limit=limits.server_max_request_batch)


def _check_limits(config: ConsumerConfig, stream: StreamConfig, limits: ConsumerLimits) -> None:
    for limit in (
        limits.server_max_ack_pending,
        limits.account_max_ack_pending,
        stream.consumer_limits.max_ack_pending,
    ):
        errcodes.CONSUMER_MAX_PENDING_ACK_EXCESS.raise_if(0 < limit < config.max_ack_pending, limit=limit)
    threshold_ns = stream.consumer_limits.inactive_threshold_ns
    if 0 < threshold_ns < config.inactive_threshold_ns:
        raise errcodes.CONSUMER_INACTIVE_THRESHOLD_EXCESS.error(limit=duration_text(threshold_ns))


def _check_filters(config: ConsumerConfig, covered: str | None) -> None:
    errcodes.CONSUMER_DUPLICATE_FILTER_SUBJECTS.raise_if(config.filter_subject and config.filter_subjects)
    if config.filter_subject and not is_valid_subject(config.filter_subject.encode()):
        raise errcodes.invalid_config("invalid subject")
    errcodes.CONSUMER_EMPTY_FILTER.raise_if("" in config.filter_subjects)
    if covered is NOT_SEARCHED:
        covered = at_once(search_filters(config))
    for subject in config.filters:
        if not is_valid_subject(subject.encode()):
            raise errcodes.invalid_config("invalid subject")
        if subject == covered:
            raise errcodes.CONSUMER_OVERLAPPING_SUBJECT_FILTERS.error()


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    words = policy.replace("_", " ")

    def fault(what: str, state: str) -> ApiError:
        text = f"consumer delivery policy is deliver {words}, but optional {what} is {state}"
        return errcodes.CONSUMER_INVALID_POLICY.error(err=text)

    if policy == "by_start_sequence":
        if config.opt_start_seq == 0:
            raise fault("start sequence", "not set")
        if config.opt_start_time_ns is not None:
            raise fault("start time", "also set")
        return
    if policy == "by_start_time":
        if config.opt_start_time_ns is None:
            raise fault("start time", "not set")
        if config.opt_start_seq:
            raise fault("start start sequence", "also set")
        return
    if config.opt_start_seq:
        raise fault("start sequence", "also set")
    if config.opt_start_time_ns is not None:
        raise fault("start time", "also set")
    if policy == "last_per_subject" and not config.filters:
        raise fault("filter subject", "not set")


def _check_sampling(config: ConsumerConfig) -> None:
    if not config.sample_freq:
        return
    text = config.sample_freq.removesuffix("%")
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise errcodes.CONSUMER_INVALID_SAMPLING.error(err=f'strconv.Atoi: parsing "{text}": invalid syntax')
    if not -(2**63) <= int(text) < 2**63:
        raise errcodes.CONSUMER_INVALID_SAMPLING.error(
            err=f'strconv.Atoi: parsing "{text}": value out of range'
        )
    errcodes.CONSUMER_INVALID_SAMPLING.raise_if(int(text) < 0, err="<nil>")


def _check_priorities(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        errcodes.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE.raise_if(config.priority_groups)
        errcodes.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE.raise_if(config.priority_timeout_ns)
        return
    errcodes.CONSUMER_PUSH_WITH_PRIORITY_GROUP.raise_if(config.push)
    errcodes.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP.raise_if(not config.priority_groups)
    for group in config.priority_groups:
        if not group:
            raise errcodes.CONSUMER_EMPTY_GROUP_NAME.error()
        if not _GROUP_NAME.fullmatch(group):
            raise errcodes.CONSUMER_INVALID_GROUP_NAME.error()


_FIXED = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time_ns", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat_ns", "heart beats"),
    ("flow_control", "flow control"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, bound: bool) -> None:
    """Refuse a change of a fixed field; `bound` means that a subscription matches the old deliver subject.

    Raises:
        ApiError: 10012 with a description of the change, or 10013 if a bound deliver subject changes.
    """
    for attribute, words in _FIXED:
        if getattr(old, attribute) != getattr(new, attribute):
            raise errcodes.CONSUMER_CREATE.error(err=f"{words} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        errcodes.CONSUMER_CREATE.raise_if(not old.push, err="can not update pull consumer to push based")
        errcodes.CONSUMER_CREATE.raise_if(not new.push, err="can not update push consumer to pull based")
        errcodes.CONSUMER_NAME_EXIST.raise_if(bound)
    if old.max_waiting != new.max_waiting:
        raise errcodes.CONSUMER_CREATE.error(err="max waiting can not be updated")


def same_but_versions(a: ConsumerConfig, b: ConsumerConfig) -> bool:
    """Return whether two configurations are equal, apart from the server versions in their metadata."""
    return changed(a, metadata=_user_metadata(a)) == changed(b, metadata=_user_metadata(b))


def _user_metadata(config: ConsumerConfig) -> dict[str, str]:
    managed = (META_VERSION, META_LEVEL, META_REQUIRED_LEVEL)
    return {key: value for key, value in config.metadata.items() if key not in managed}


def with_required_level(config: ConsumerConfig) -> ConsumerConfig:
    """Return `config` with the required API level in its metadata, but without other metadata that servers set."""
    level = 0
    pauses = config.pause_until_ns not in (None, ZERO_TIME_NS)
    if pauses or config.priority_policy != "none" or config.priority_groups:
        level = 1
    if config.ack_policy == "flow_control":
        level = 4
    return changed(config, metadata={**_user_metadata(config), META_REQUIRED_LEVEL: str(level)})


def check_workqueue(config: ConsumerConfig, claims: SubjectTree) -> None:
    """Refuse a new consumer that a workqueue stream cannot have.

    `claims` has the filters of the consumers that the stream already has.

    Raises:
        ApiError: 10098 to 10101.
    """
    errcodes.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK.raise_if(config.ack_policy not in ("explicit", "flow_control"))
    errcodes.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL.raise_if(config.deliver_policy != "all")
    if claims.is_empty:
        return
    errcodes.CONSUMER_WQ_MULTIPLE_UNFILTERED.raise_if(not config.filters)
    check_unshared(config, claims)


def check_unshared(config: ConsumerConfig, claims: SubjectTree, name: str = "") -> None:
    """Refuse filters that overlap with those of a consumer other than `name` in a workqueue stream.

    Raises:
        ApiError: 10100.
    """
    if any(at_once(claims.overlapping(subject, name)) for subject in config.filters):
        raise errcodes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE.error()
