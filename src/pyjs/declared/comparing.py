"""Differences between a stored and a declared configuration, and the messages that an update would remove.

Source: the options are those of pyjs.jetstream.config; the removals are those of `update` in
jetstream/manage/streams.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from pyjs.base.gotext import duration_text
from pyjs.jetstream.config.choices import INTEREST, LIMITS
from pyjs.jetstream.config.declared import as_json, options_of, shape_of
from pyjs.jetstream.config.level import META_LEVEL, META_REQUIRED_LEVEL, META_VERSION

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.stream import StreamConfig

MANAGED = (META_VERSION, META_LEVEL, META_REQUIRED_LEVEL)
TEXT_MAX = 100  # characters of a value that a line shows
_NAMED = ("name", "durable_name")


class Change(NamedTuple):
    """One option in which the stored and the declared configuration differ."""

    field: str
    old: Any  # as JSON
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.field, self.old)} -> {_shown(self.field, self.new)}"


def stream_changes(old: StreamConfig, new: StreamConfig) -> tuple[Change, ...]:
    """Return the options in which two configurations of a stream differ."""
    return _changes(old, new)


def consumer_changes(old: ConsumerConfig, new: ConsumerConfig) -> tuple[Change, ...]:
    """Return the options in which two configurations of a consumer differ."""
    return _changes(old, new)


def _changes(old: DataclassInstance, new: DataclassInstance) -> tuple[Change, ...]:
    before, after = as_json(old), as_json(new)
    found = []
    for option in options_of(type(old)):
        values = [
            _value(option.name, each.get(option.name, _absent(option.zero))) for each in (before, after)
        ]
        if values[0] != values[1] and option.name not in _NAMED:
            found.append(Change(option.name, *values))
    return tuple(found)


def _absent(zero: Any) -> Any:
    """Return the value to compare for an option that the JSON omits: the option's zero value, as a JSON type."""
    return list(zero) if isinstance(zero, tuple) else zero


def _value(name: str, value: Any) -> Any:
    if name != "metadata":
        return value
    return {key: text for key, text in value.items() if key not in MANAGED}


def _shown(field: str, value: Any) -> str:
    """Return a value as text: a duration with units, a string without quotes, any other value as JSON.

    A string of more than TEXT_MAX characters is truncated.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and field in DURATIONS:
        return duration_text(value)
    if value is None:
        return "none"
    text = value or '""' if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _durations() -> frozenset[str]:
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.stream import StreamConfig

    return frozenset(
        each.name
        for of in (StreamConfig, ConsumerConfig)
        for each in shape_of(of).options
        if each.kind.name == "time.Duration"
    )


DURATIONS = _durations()


# -- messages that an update would remove ------------------------------------------------------------------------


class Contents(NamedTuple):
    """The size of a stream's contents, and the time of its first message."""

    messages: int = 0
    size: int = 0  # bytes
    subjects: int = 0
    first_ns: int = 0  # time of the first message


def stream_loss(old: StreamConfig, new: StreamConfig, contents: Contents, now_ns: int) -> str:
    """Return a description of the messages that an update of a stream would remove now, or "" if there are none.

    The end of a mirror counts as a loss, since a stream cannot become a mirror again.
    """
    if old.mirror is not None and new.mirror is None:
        return f"without a mirror, the stream stops copying {old.mirror.name} for good"
    messages = contents.messages
    if not messages:
        return ""
    if old.retention == LIMITS != new.retention:
        return f"retention {new.retention} removes messages that no consumer needs, of {messages}"
    if 0 < new.max_msgs < messages:
        return f"max_msgs {new.max_msgs} would remove {messages - new.max_msgs} of {messages} messages"
    if 0 < new.max_bytes < contents.size:
        return f"max_bytes {new.max_bytes} would remove messages: the stream holds {contents.size} bytes"
    is_shorter = new.max_age_ns > 0 and (new.max_age_ns < old.max_age_ns or not old.max_age_ns)
    if is_shorter and now_ns - contents.first_ns > new.max_age_ns:
        return f"max_age {duration_text(new.max_age_ns)} would remove messages that are older"
    return _subject_loss(old, new, messages, contents.subjects)


def _subject_loss(old: StreamConfig, new: StreamConfig, messages: int, subjects: int) -> str:
    limit, before = new.max_msgs_per_subject, old.max_msgs_per_subject
    is_lower = limit > 0 and (before <= 0 or limit < before)
    # with as many messages as subjects, every subject has one
    if not is_lower or messages <= limit or messages == subjects:
        return ""
    return f"max_msgs_per_subject {limit} may remove messages: {messages} messages have {subjects} subjects"


def consumer_loss(stream: StreamConfig, old: ConsumerConfig, new: ConsumerConfig, messages: int) -> str:
    """Return the reason why an update of a consumer would remove messages of its stream, or "" if it removes none."""
    if stream.retention != INTEREST or not messages or old.filters == new.filters:
        return ""
    return "other filters remove messages of a stream with retention interest that no consumer needs"
