"""Checks of a stream's mirror and sources, in nats-server's order, and the options that a mirror inherits.

These are pure functions: the caller passes a function that finds the configurations of other streams.

Source: order, codes and error messages probed on nats-server 2.15.1 (tests/conformance/scenarios/mirror, source).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bounds import TIME_NS
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.declared import changed
from pyjs.jetstream.config.stream import (
    SourceConsumer,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from pyjs.jetstream.errcodes import ErrorCode
from pyjs.jetstream.names import is_valid_name
from pyjs.subjects.tokens import is_subset, is_valid_literal, is_valid_subject, subjects_overlap
from pyjs.subjects.transform import TransformError, check_mapping

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    # returns the configuration of the stream with this name; None: there is no such stream
    Find: TypeAlias = Callable[[str], StreamConfig | None]

API_PREFIX = "$JS.API"


def check(config: StreamConfig, find: Find, pedantic: bool) -> StreamConfig:
    """Check the mirror and the sources of `config`, and return the configuration to use.

    In the configuration of a mirror, `mirror_direct` is set to the origin's `allow_direct` if the origin is known.

    Raises:
        ApiError: the first violation.
    """
    if config.mirror is not None:
        config = _checked_mirror(config, config.mirror, find, pedantic)
    errcodes.SOURCE_WITH_MSG_SCHEDULES.raise_if(config.sources and config.allow_msg_schedules)
    seen: set[tuple[object, ...]] = set()
    for source in config.sources:
        _check_source(config, source, find, seen)
    _check_external(config, find)
    _check_cycle(config, find)
    return config


def check_filters(config: StreamConfig) -> None:
    """Refuse filters that are not valid subjects; nats-server checks this when it creates the stream.

    Raises:
        ApiError: 10049.
    """
    if config.mirror and not _may_filter(config.mirror):
        text = f"subject filter '{config.mirror.filter_subject}' for the mirror invalid subject"
        raise errcodes.STREAM_CREATE.error(err=text)
    for source in config.sources:
        if not _may_filter(source):
            text = f"subject filter '{source.filter_subject}' for the source: invalid subject"
            raise errcodes.STREAM_CREATE.error(err=text)


def check_kept(config: StreamConfig, find: Find) -> None:
    """Refuse a stored mirror or source that no request could have set.

    Of the rules about other streams, only the rule against cycles is checked, since the other streams may have
    changed.

    Raises:
        ApiError: the first violation.
    """
    check_filters(config)
    for source in _origins(config):
        errcodes.SOURCE_INVALID_STREAM_NAME.raise_if(not is_valid_name(source.name))
        if source.opt_start_seq < 0 or not TIME_NS.low <= (source.opt_start_time_ns or 0) <= TIME_NS.high:
            raise errcodes.invalid_config(f"start {source.opt_start_seq}, {source.opt_start_time_ns}")
        for transform in source.subject_transforms:
            _check_transform(
                transform,
                errcodes.SOURCE_INVALID_SUBJECT_FILTER,
                errcodes.SOURCE_INVALID_TRANSFORM_DESTINATION,
            )
    _check_cycle(config, find)


def _may_filter(source: StreamSource) -> bool:
    return not source.filter_subject or is_valid_subject(source.filter_subject.encode())


# -- mirrors -----------------------------------------------------------------------------------------------


def _checked_mirror(config: StreamConfig, mirror: StreamSource, find: Find, pedantic: bool) -> StreamConfig:
    errcodes.MIRROR_WITH_FIRST_SEQ.raise_if(config.first_seq > 0)
    errcodes.MIRROR_WITH_SUBJECTS.raise_if(config.subjects)
    errcodes.MIRROR_WITH_SOURCES.raise_if(config.sources)
    errcodes.MIRROR_WITH_COUNTERS.raise_if(config.allow_msg_counter)
    errcodes.MIRROR_WITH_ATOMIC_PUBLISH.raise_if(config.allow_atomic)
    errcodes.MIRROR_WITH_BATCH_PUBLISH.raise_if(config.allow_batched)
    errcodes.MIRROR_WITH_MSG_SCHEDULES.raise_if(config.allow_msg_schedules)
    _check_consumer(mirror, errcodes.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    errcodes.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED.raise_if(mirror.filter_subject and mirror.subject_transforms)
    if config.subject_delete_marker_ttl_ns > 0:
        raise errcodes.invalid_config("subject delete markers forbidden on mirrors")
    for at, transform in enumerate(mirror.subject_transforms):
        _check_transform(
            transform, errcodes.MIRROR_INVALID_SUBJECT_FILTER, errcodes.MIRROR_INVALID_TRANSFORM_DESTINATION
        )
        others = [each for place, each in enumerate(mirror.subject_transforms) if place != at]
        if any(subjects_overlap(transform.src.encode(), other.src.encode()) for other in others):
            raise errcodes.MIRROR_OVERLAPPING_SUBJECT_FILTERS.error()
    return config if mirror.external else _with_origin(config, mirror, find, pedantic)


def _with_origin(config: StreamConfig, mirror: StreamSource, find: Find, pedantic: bool) -> StreamConfig:
    errcodes.MIRROR_INVALID_STREAM_NAME.raise_if(not is_valid_name(mirror.name))
    origin = find(mirror.name)
    if origin is None:
        return config
    errcodes.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG.raise_if(_is_too_small(config, origin))
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise errcodes.PEDANTIC.error(err="origin stream has direct get set, mirror has it disabled")
    return changed(config, mirror_direct=origin.allow_direct)


# -- sources -----------------------------------------------------------------------------------------------


def _check_source(
    config: StreamConfig, source: StreamSource, find: Find, seen: set[tuple[object, ...]]
) -> None:
    errcodes.SOURCE_INVALID_STREAM_NAME.raise_if(not is_valid_name(source.name))
    key = _identity(source)
    errcodes.SOURCE_DUPLICATE_DETECTED.raise_if(key in seen)
    seen.add(key)
    errcodes.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED.raise_if(source.filter_subject and source.subject_transforms)
    for transform in source.subject_transforms:
        _check_transform(
            transform, errcodes.SOURCE_INVALID_SUBJECT_FILTER, errcodes.SOURCE_INVALID_TRANSFORM_DESTINATION
        )
    for at, transform in enumerate(source.subject_transforms):
        others = [each for place, each in enumerate(source.subject_transforms) if place != at]
        if any(is_subset(transform.src.encode(), other.src.encode()) for other in others):
            raise errcodes.SOURCE_OVERLAPPING_SUBJECT_FILTERS.error()
    _check_consumer(source, errcodes.SOURCE_DURABLE_CONSUMER_CFG_INVALID)
    if source.consumer is not None:
        consumer = ("consumer", *key[:2], source.consumer.name)
        errcodes.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED.raise_if(consumer in seen)
        seen.add(consumer)
    origin = None if source.external else find(source.name)
    if origin is not None and _is_too_small(config, origin):
        raise errcodes.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG.error()


def _identity(source: StreamSource) -> tuple[object, ...]:
    """Return the fields of which at least one must differ between two sources of a stream."""
    transforms = source.subject_transforms or (SubjectTransformConfig(source.filter_subject, ""),)
    return (
        source.name,
        source.external and source.external.api,
        source.consumer and source.consumer.name,
        tuple((each.src or ">", each.dest or ">") for each in transforms),
    )


# -- both --------------------------------------------------------------------------------------------------


def _check_consumer(source: StreamSource, error: ErrorCode) -> None:
    consumer: SourceConsumer | None = source.consumer
    if consumer is None:
        return
    started = source.opt_start_seq or source.opt_start_time_ns is not None
    if (
        not is_valid_name(consumer.name)
        or not is_valid_literal(consumer.deliver_subject.encode())
        or started
        or source.filter_subject
    ):
        raise error.error()


def _check_transform(
    given: SubjectTransformConfig, bad_source: ErrorCode, bad_destination: ErrorCode
) -> None:
    if given.src and not is_valid_subject(given.src.encode()):
        raise bad_source.error(err=f"invalid subject {given.src}")
    try:
        check_mapping(given.src, given.dest)
    except TransformError as error:
        raise bad_destination.error(err=error) from None


def _is_too_small(config: StreamConfig, origin: StreamConfig) -> bool:
    return 0 < config.max_msg_size < origin.max_msg_size


def _origins(config: StreamConfig) -> tuple[StreamSource, ...]:
    return (*config.sources, config.mirror) if config.mirror else config.sources


def _check_external(config: StreamConfig, find: Find) -> None:
    """Refuse external prefixes that are invalid, or that overlap with this server's API or the copied subjects."""
    origins = _origins(config)
    here = [find(each.name) for each in origins if each.external is None]
    subjects = [subject for origin in here if origin is not None for subject in origin.subjects]
    outside = [each.external for each in origins if each.external is not None]
    for prefix in [each.deliver for each in outside if each.deliver]:
        if not is_valid_literal(prefix.encode()):
            raise errcodes.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ.error(prefix=prefix)
        for subject in subjects:
            if subjects_overlap(subject.encode(), f"{prefix}.{subject}".encode()):
                raise errcodes.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS.error(prefix=prefix, subject=subject)
    for prefix in [each.api for each in outside if each.api]:
        if not is_valid_literal(prefix.encode()):
            raise errcodes.invalid_config(
                f'stream external api prefix "{prefix}" must be a valid subject without wildcards'
            )
        if prefix == API_PREFIX:
            raise errcodes.STREAM_EXTERNAL_API_OVERLAP.error(prefix=prefix, subject=API_PREFIX)


def _check_cycle(config: StreamConfig, find: Find) -> None:
    """Refuse a configuration by which messages would return to the stream from which they came."""
    todo, visited = [config], set()
    while todo:
        current = todo.pop(0)
        visited.add(current.name)
        for source in _origins(current):
            if source.external is not None:
                continue
            if source.name not in visited:
                origin = find(source.name)
                if origin is not None:
                    todo.append(origin)
            elif source is current.mirror or _returns(current, source):
                raise errcodes.invalid_config("detected cycle")


def _returns(config: StreamConfig, source: StreamSource) -> bool:
    """Return whether messages of `source` can have a subject that the stream `config` stores."""
    wanted = source.filter_subject.encode()
    return not wanted or any(subjects_overlap(subject.encode(), wanted) for subject in config.subjects)
