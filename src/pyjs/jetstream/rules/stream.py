"""Checks and defaults of stream configurations when streams are created and updated, in nats-server's order.

Pure functions of configurations and options: they touch no stream, store or account. Checks that need other streams
(name in use, overlap of subjects, reservations) are in jetstream/manage/streams.py.

Source: order, codes and error messages probed on nats-server 2.15.1, see
tests/unit/jetstream/rules/test_stream_rules.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import duration_text
from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import ASYNC, FILE, LIMITS, MEMORY, NEW, WORKQUEUE
from pyjs.jetstream.config.declared import as_json, changed
from pyjs.jetstream.config.stream import RepublishConfig, StreamConfig
from pyjs.jetstream.names import is_valid_name
from pyjs.jetstream.rules import sources as source_rules
from pyjs.subjects.overlap import at_once, first_overlap
from pyjs.subjects.tokens import is_subset, is_valid_subject, subjects_overlap
from pyjs.subjects.transform import TransformError, check_mapping, check_transform

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.rules.sources import Find

NAME_SIZE_MAX = 255
DESCRIPTION_SIZE_MAX = 4096
METADATA_SIZE_MAX = 128 * 1024
REPLICAS_MAX = 5
NS_PER_S = 1_000_000_000
DUPLICATE_WINDOW_NS = 120 * NS_PER_S
SHORTEST_NS = 100 * 1_000_000  # minimum of max_age and duplicate_window, ns
NOT_SEARCHED = "not searched"  # differs from every valid subject, since it has a blank
_LIMITS = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_create(config: StreamConfig) -> None:
    """Refuse options that only an existing stream can have.

    Raises:
        ApiError: the first violation.
    """
    errcodes.STREAM_NAME_CONTAINS_PATH_SEPARATORS.raise_if("\\" in config.name or "/" in config.name)
    errcodes.refuse_config(config.sealed, "stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise errcodes.invalid_config("stream has no mirror but does have mirror direct")


def check(
    config: StreamConfig,
    options: JetStreamOptions,
    limits: AccountJetStreamOptions,
    pedantic: bool = False,
    find: Find = lambda name: None,
    overlapping: str | None = NOT_SEARCHED,
) -> StreamConfig:
    """Return `config` with defaults filled in. With `pedantic`, refuse values that would have to be corrected.

    `find` takes a name, and returns the configuration of the account's stream with this name, or None if there is no
    such stream.
    `overlapping` is the result of `first_overlap` for the valid subjects.

    Raises:
        ApiError: the first violation.
    """
    _check_texts(config)
    config = _with_limits(config, pedantic)
    config = _with_times(config, options, pedantic)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise errcodes.invalid_config("roll-ups require the purge permission")
    if config.allow_msg_counter:
        _check_counter(config)
    _check_discard_new_per_subject(config)
    config = _with_delete_markers(config, pedantic)
    config = _with_schedules(config, pedantic)
    if config.persist_mode == ASYNC:
        _check_async(config)
    if config.mirror or config.sources:
        config = source_rules.check(config, find, pedantic)
    config = _with_subjects(config, overlapping)
    _check_max_bytes(config, limits)
    _check_transform(config)
    config = _with_republish(config, pedantic)
    if config.placement and not as_json(config.placement):
        config = changed(config, placement=None)
    if config.placement and config.placement.preferred:
        raise errcodes.invalid_config("preferred server not permitted in placement")
    return config


def check_single_server(config: StreamConfig) -> None:
    """Refuse options that only work in a cluster.

    Raises:
        ApiError: 10074.
    """
    errcodes.STREAM_REPLICAS_NOT_SUPPORTED.raise_if(config.num_replicas > 1)


def check_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """Return the configuration that replaces `old`; `new` must have passed `check`.

    Raises:
        ApiError: `new` changes an option that an update must not change; the message names the option.
    """
    if new.storage != old.storage:
        raise errcodes.invalid_config("stream configuration update can not change storage type")
    if new.retention != old.retention and WORKQUEUE in (new.retention, old.retention):
        raise errcodes.invalid_config(
            "stream configuration update can not change retention policy to/from workqueue"
        )
    if old.sealed and not new.sealed:
        raise errcodes.invalid_config("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise errcodes.invalid_config("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise errcodes.invalid_config("stream configuration update can not cancel deny purge")
    errcodes.STREAM_MIRROR_NOT_UPDATABLE.raise_if(new.mirror and new.mirror != old.mirror)
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise errcodes.invalid_config("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise errcodes.invalid_config("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise errcodes.invalid_config("message schedules can not be disabled")
    if new.persist_mode != old.persist_mode:
        raise errcodes.invalid_config("stream configuration update can not change persist mode")
    if not new.sealed:
        return new
    return changed(new, max_age_ns=0, discard=NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)


def _check_texts(config: StreamConfig) -> None:
    if not is_valid_name(config.name):
        raise errcodes.invalid_config("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > NAME_SIZE_MAX:
        raise errcodes.invalid_config(f"stream name is too long, maximum allowed is {NAME_SIZE_MAX}")
    if len(config.description.encode()) > DESCRIPTION_SIZE_MAX:
        raise errcodes.invalid_config(
            f"stream description is too long, maximum allowed is {DESCRIPTION_SIZE_MAX}"
        )
    size = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    if size > METADATA_SIZE_MAX:
        raise errcodes.invalid_config(f"stream metadata exceeds maximum size of {METADATA_SIZE_MAX} bytes")


def _with_limits(config: StreamConfig, pedantic: bool) -> StreamConfig:
    replicas = config.num_replicas or 1
    errcodes.refuse_config(replicas > REPLICAS_MAX, f"maximum replicas is {REPLICAS_MAX}")
    errcodes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.raise_if(replicas < 0)
    values = {name: getattr(config, name) for name in _LIMITS}
    for name, value in values.items():
        if pedantic and value < -1:
            raise errcodes.PEDANTIC.error(err=f"{name} must be set to -1")
    corrected: dict[str, Any] = {name: value if value > 0 else -1 for name, value in values.items()}
    return changed(config, num_replicas=replicas, **corrected)


def _with_times(config: StreamConfig, options: JetStreamOptions, pedantic: bool) -> StreamConfig:
    errcodes.refuse_config(config.max_age_ns < 0, "max age can not be negative")
    errcodes.refuse_config(0 < config.max_age_ns < SHORTEST_NS, "max age needs to be >= 100ms")
    longest = options.limits.duplicate_window_ns
    window = config.duplicate_window_ns
    if window == 0 and not (config.mirror or config.sources):
        window = _default_window(config.max_age_ns, longest, pedantic)
    errcodes.refuse_config(window < 0, "duplicates window can not be negative")
    if config.max_age_ns and window > config.max_age_ns:
        raise errcodes.invalid_config("duplicates window can not be larger then max age")
    if 0 < longest < window:
        shown = duration_text(longest)
        raise errcodes.invalid_config(f"duplicates window can not be larger then server limit of {shown}")
    errcodes.refuse_config(0 < window < SHORTEST_NS, "duplicates window needs to be >= 100ms")
    return changed(config, duplicate_window_ns=window)


def _default_window(max_age_ns: int, longest: int, pedantic: bool) -> int:
    window = DUPLICATE_WINDOW_NS
    if 0 < longest < window:
        errcodes.PEDANTIC.raise_if(pedantic, err="duplicate window limits are higher than current limits")
        window = longest
    if 0 < max_age_ns < window:
        errcodes.PEDANTIC.raise_if(pedantic, err="duplicate window cannot be bigger than max age")
        window = max_age_ns
    return window


def _check_counter(config: StreamConfig) -> None:
    errcodes.refuse_config(config.discard == NEW, "counter stream cannot use discard new")
    errcodes.refuse_config(config.allow_msg_ttl, "counter stream cannot use message TTLs")
    errcodes.refuse_config(config.allow_msg_schedules, "counter stream cannot use message schedules")
    if config.retention != LIMITS:
        raise errcodes.invalid_config("counter stream can only use limits retention")


def _check_discard_new_per_subject(config: StreamConfig) -> None:
    if not config.discard_new_per_subject:
        return
    if config.discard != NEW:
        raise errcodes.invalid_config("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise errcodes.invalid_config("discard new per subject requires max msgs per subject > 0")


def _with_delete_markers(config: StreamConfig, pedantic: bool) -> StreamConfig:
    ttl_ns = config.subject_delete_marker_ttl_ns
    errcodes.refuse_config(ttl_ns < 0, "subject delete marker TTL must not be negative")
    if ttl_ns == 0:
        return config
    errcodes.refuse_config(ttl_ns < NS_PER_S, "subject delete marker TTL must be at least 1 second")
    if pedantic and not config.allow_msg_ttl:
        raise errcodes.invalid_config("subject delete marker cannot be set if message TTLs are disabled")
    if config.allow_rollup_hdrs:
        return changed(config, allow_msg_ttl=True)
    errcodes.refuse_config(pedantic, "subject delete marker cannot be set if roll-ups are disabled")
    return changed(config, allow_msg_ttl=True, allow_rollup_hdrs=True, deny_purge=False)


def _with_schedules(config: StreamConfig, pedantic: bool) -> StreamConfig:
    if not config.allow_msg_schedules:
        return config
    errcodes.refuse_config(config.discard == NEW, "message scheduling cannot use discard new")
    if config.allow_rollup_hdrs:
        return config
    errcodes.refuse_config(pedantic, "message scheduling cannot be set if roll-ups are disabled")
    return changed(config, allow_rollup_hdrs=True, deny_purge=False)


def _check_async(config: StreamConfig) -> None:
    errcodes.refuse_config(config.storage != FILE, "async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise errcodes.invalid_config("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise errcodes.invalid_config("async persist mode is not supported with atomic batch publish")


def valid_subjects(config: StreamConfig) -> list[str]:
    """Return those subjects of a configuration that are valid."""
    return [subject for subject in config.subjects if is_valid_subject(subject.encode())]


def _with_subjects(config: StreamConfig, overlapping: str | None) -> StreamConfig:
    if not config.subjects:
        return config if config.mirror or config.sources else changed(config, subjects=(config.name,))
    if overlapping is NOT_SEARCHED:
        overlapping = at_once(first_overlap(valid_subjects(config)))
    seen: set[str] = set()
    for at, subject in enumerate(config.subjects):
        raw = subject.encode()
        if not is_valid_subject(raw):
            raise errcodes.invalid_config("invalid subject")
        if subject in seen:
            raise errcodes.invalid_config("duplicate subjects detected")
        seen.add(subject)
        _check_reach(config, raw)
        if subject == overlapping:
            later = [each for each in config.subjects[at + 1 :] if is_valid_subject(each.encode())]
            other = next(each for each in later if subjects_overlap(each.encode(), raw))
            raise errcodes.invalid_config(f'subject "{subject}" overlaps with "{other}"')
    return config


def _check_reach(config: StreamConfig, subject: bytes) -> None:
    if subject == b">" and not config.no_ack:
        raise errcodes.invalid_config("capturing all subjects requires no-ack to be true")
    if subject == b">" and config.num_replicas != 1:
        raise errcodes.invalid_config("capturing all subjects requires replicas of 1")
    if config.no_ack or subject[:1] not in b"$*>":
        return
    for space in (b"$JS.>", b"$JSC.>", b"$NRG.>"):
        if subjects_overlap(subject, space) and not is_subset(subject, b"$JS.EVENT.>"):
            raise errcodes.invalid_config(
                "subjects that overlap with jetstream api require no-ack to be true"
            )
    if subjects_overlap(subject, b"$SYS.>") and not is_subset(subject, b"$SYS.ACCOUNT.>"):
        raise errcodes.invalid_config("subjects that overlap with system api require no-ack to be true")


def _check_transform(config: StreamConfig) -> None:
    given = config.subject_transform
    if given is None:
        return
    if given.src and not is_valid_subject(given.src.encode()):
        raise errcodes.STREAM_TRANSFORM_INVALID_SOURCE.error(err=f"invalid subject {given.src}")
    try:
        check_mapping(given.src, given.dest)
    except TransformError as error:
        raise errcodes.STREAM_TRANSFORM_INVALID_DESTINATION.error(err=error) from None


def _with_republish(config: StreamConfig, pedantic: bool) -> StreamConfig:
    given = config.republish
    if given is None:
        return config
    errcodes.PEDANTIC.raise_if(pedantic and not given.src, err="republish source can not be empty")
    src, dest = given.src or ">", given.dest
    moved = config.subject_transform
    if src == dest == ">" and moved is not None and config.subjects == (moved.src,):
        # The transform changes all subjects of the stream, so republishing does not form a cycle.
        errcodes.PEDANTIC.raise_if(pedantic, err="implicit republish based on subject transform")
        src = dest = moved.dest
    if dest and any(subjects_overlap(dest.encode(), subject.encode()) for subject in config.subjects):
        raise errcodes.invalid_config("stream configuration for republish destination forms a cycle")
    try:
        check_transform(src, dest)
    except TransformError:
        text = f"stream configuration for republish with transform from '{src}' to '{dest}' not valid"
        raise errcodes.invalid_config(text) from None
    return changed(config, republish=RepublishConfig(src, dest, given.headers_only))


def _check_max_bytes(config: StreamConfig, limits: AccountJetStreamOptions) -> None:
    errcodes.STREAM_MAX_BYTES_REQUIRED.raise_if(limits.max_bytes_required and config.max_bytes <= 0)
    largest = {FILE: limits.disk_max_stream_bytes, MEMORY: limits.mem_max_stream_bytes}[config.storage]
    errcodes.STREAM_MAX_STREAM_BYTES_EXCEEDED.raise_if(0 < largest < config.max_bytes)
