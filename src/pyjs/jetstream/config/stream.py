"""The configuration of a stream: what a request may set, what is kept, what responses show.

A StreamConfig is a cold value, never changed once made: the compiled Stream copies what it needs once, at
creation and update. (It is not frozen: `same_as` changes copies of its own.) Knows nothing of limits
and conflicts (jetstream/rules/stream.py) or of request bodies (jetstream/config/stream_requests.py).

Source: nats.docs "Streams"; field order, names and what is left out when empty probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.bounds import INT64, TIME_NS, UINT64, Range, wrapped_ns
from pyjs.base.gotext import moment_text, time_text
from pyjs.jetstream.config.json_strict import parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

LIMITS, INTEREST, WORKQUEUE = "limits", "interest", "workqueue"
OLD, NEW = "old", "new"
FILE, MEMORY = "file", "memory"
NONE, S2 = "none", "s2"  # of compression
STORED = Range(INT64.low, UINT64.high)  # what a number of the metadata may be

API_LEVEL = 5
PEER_VERSION = "2.15.1"  # the nats-server whose behaviour is implemented; shown to clients
META_VERSION, META_LEVEL, META_REQUIRED_LEVEL = "_nats.ver", "_nats.level", "_nats.req.level"


@dataclass(repr=False, slots=True)
class Placement:
    """Where a stream should live; kept and shown, a single server has nothing to choose."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


@dataclass(repr=False, slots=True)
class ConsumerLimits:
    """What consumers of the stream may ask for; 0: anything."""

    inactive_threshold_ns: int = 0
    max_ack_pending: int = 0


@dataclass(repr=False, slots=True)
class SubjectTransformConfig:
    """Under which subject a message is stored; an empty source is every subject, an empty destination none."""

    src: str = ""
    dest: str = ""


@dataclass(repr=False, slots=True)
class RepublishConfig:
    """Where messages are published once they are kept; an empty destination is nowhere."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False


@dataclass(repr=False, slots=True)
class ExternalStream:
    """Where the API of another account or domain is found, and where it delivers to."""

    api: str = ""
    deliver: str = ""


@dataclass(repr=False, slots=True)
class SourceConsumer:
    """A consumer of the origin that is there already; read for its checks, and then refused."""

    name: str = ""
    deliver_subject: str = ""


@dataclass(repr=False, slots=True)
class StreamSource:
    """A stream that another one takes its messages from: its mirror, or one of its sources."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time_ns: int | None = None
    filter_subject: str = ""
    subject_transforms: tuple[SubjectTransformConfig, ...] = ()
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The subjects to take; empty: every subject."""
        if self.subject_transforms:
            return tuple((each.src or ">").encode() for each in self.subject_transforms)
        return (self.filter_subject.encode(),) if self.filter_subject else ()


@dataclass(repr=False, slots=True)
class StreamConfig:
    """One stream's configuration; -1 is "no limit" in every limit."""

    name: str
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: str = LIMITS
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age_ns: int = 0  # 0: messages do not expire
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1  # headers and payload
    discard: str = OLD
    storage: str = FILE
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window_ns: int = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None  # all messages come from it, with its sequences
    sources: tuple[StreamSource, ...] = ()
    compression: str = NONE
    first_seq: int = 0
    subject_transform: SubjectTransformConfig | None = None
    republish: RepublishConfig | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits = field(default_factory=ConsumerLimits)
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl_ns: int = 0  # 0: expired subjects leave nothing behind
    metadata: Mapping[str, str] = field(default_factory=dict)

    def with_required_level(self) -> StreamConfig:
        """Return the configuration to store: the API level it needs is noted, what responses add is dropped."""
        kept = {key: value for key, value in self.metadata.items() if key not in (META_VERSION, META_LEVEL)}
        kept[META_REQUIRED_LEVEL] = (
            "1" if self.allow_msg_ttl or self.subject_delete_marker_ttl_ns > 0 else "0"
        )
        return replace(self, metadata=kept)

    def with_server_metadata(self) -> StreamConfig:
        """Return the configuration as CREATE, UPDATE and INFO show it."""
        shown = {**self.metadata, META_VERSION: PEER_VERSION, META_LEVEL: str(API_LEVEL)}
        return replace(self, metadata=shown)

    def same_as(self, other: StreamConfig) -> bool:
        """Return whether both mean the same stream, whatever server versions they went through."""
        level = {META_REQUIRED_LEVEL: ""}
        mine, theirs = self.with_required_level(), other.with_required_level()
        mine.metadata, theirs.metadata = {**mine.metadata, **level}, {**theirs.metadata, **level}
        return mine == theirs


# What responses show although it is empty; the order of the wire is that of the fields.
_ALWAYS = {
    SubjectTransformConfig: ("src", "dest"),
    RepublishConfig: ("src", "dest"),
    ExternalStream: ("api", "deliver"),
    StreamSource: ("name",),
    StreamConfig: (
        "name retention max_consumers max_msgs max_bytes max_age_ns max_msgs_per_subject max_msg_size discard storage"
        " num_replicas compression allow_direct mirror_direct sealed deny_delete deny_purge allow_rollup_hdrs"
        " consumer_limits allow_msg_ttl"
    ).split(),
}
_RECORDS = {each.__name__: each for each in (*_ALWAYS, Placement, ConsumerLimits, SourceConsumer)}


class _Shape:
    """What is known of the fields of one kind of record."""

    def __init__(self, of: type[DataclassInstance]) -> None:
        always = _ALWAYS.get(of, ())
        self.fields = tuple((each.name, str(each.type), each.default) for each in fields(of))
        self.names = {each.name: each.name.removesuffix("_ns") for each in fields(of)}  # on the wire
        self.parts = tuple(each[:2] for each in self.fields if each[1] not in ("str", "int", "bool"))
        plain = self.names.keys() - dict(self.parts).keys()
        self.shown = tuple((name, wire, name in always, name in plain) for name, wire in self.names.items())
        self.values = attrgetter(*self.names)


_shape = cache(_Shape)


def as_json(record: DataclassInstance) -> dict[str, Any]:
    """Return a configuration, or a part of one, as responses show it."""
    out: dict[str, Any] = {}
    shape = _shape(type(record))
    for (name, wire, always, is_plain), value in zip(shape.shown, shape.values(record), strict=True):
        if is_plain:
            if value or always:
                out[wire] = value
        elif name == "opt_start_time_ns":
            if value is not None:
                out[wire] = time_text(value)
        elif value or always:
            out[wire] = _json_value(value)
    return out


def _json_value(value: Any) -> object:
    if isinstance(value, tuple):
        return [each if isinstance(each, str) else as_json(each) for each in value]
    return dict(sorted(value.items())) if isinstance(value, dict) else as_json(value)


def to_meta(value: Any) -> Any:
    """Return a configuration as plain values to be stored."""
    if isinstance(value, tuple):
        return [to_meta(each) for each in value]
    if not is_dataclass(value):
        return value
    values = {each.name: to_meta(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, StreamSource):
        del values["consumer"]
        start_ns = value.opt_start_time_ns
        if start_ns is not None and wrapped_ns(start_ns) != start_ns:
            values["opt_start_time_ns"] = moment_text(start_ns)  # more than a stored number holds
    return values


def from_meta(meta: Mapping[str, Any]) -> StreamConfig:
    """Return the configuration that `to_meta` wrote.

    Raises:
        ValueError: a field is unknown, as written by a newer version, or a value is none of its kind.
    """
    return record_of(StreamConfig, meta, is_stored=True)


def record_of(kind: type[T], values: Mapping[str, Any], is_stored: bool = False) -> T:
    """Return the record that has `values`, by the names of the wire or, stored ones, of the attributes.

    Raises:
        ValueError: as `from_meta`; those of a request are checked already.
    """
    shape = _shape(kind)
    if is_stored and (unknown := sorted(values.keys() - shape.names.keys())):
        raise ValueError(f"stream configuration has unknown fields {unknown}; a newer server wrote it")
    given = dict(values)
    if not is_stored:
        given = {name: values[wire] for name, wire in shape.names.items() if wire in values}
    for name, type_name in shape.parts:
        if name in given:
            given[name] = _given(given[name], type_name, is_stored)
    made = kind(**given)
    if is_stored:
        _check(made, TIME_NS if kind is StreamSource else STORED)
    return made


def _given(value: Any, type_name: str, is_stored: bool) -> Any:
    """Return the value of a field; what is none of its type stays as it is."""
    if type_name.startswith("tuple[") and isinstance(value, list | tuple):
        item = type_name.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_given(each, item, is_stored) for each in value)
    if type_name == "int | None" and isinstance(value, str):
        return parse_time_ns(value)
    record = _RECORDS.get(type_name.removesuffix(" | None"))
    if record is None or not isinstance(value, dict):
        return value
    return record_of(record, value, is_stored)


def _check(made: DataclassInstance, numbers: Range) -> None:
    """Refuse a record of a file of which a value is not of the kind that its field is for. Raises ValueError."""
    shape = _shape(type(made))
    for (name, type_name, default), value in zip(shape.fields, shape.values(made), strict=True):
        if value == default and type(value) is type(default):
            continue  # most are: a start reads thousands of configurations
        if not _fits(value, type_name, numbers):
            raise ValueError(f"{name} of the stream configuration is {value!r}")


def _fits(value: object, kind: str, numbers: Range) -> bool:
    if kind.endswith(" | None"):
        return value is None or _fits(value, kind.removesuffix(" | None"), numbers)
    if kind.startswith("tuple["):
        each_kind = kind.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_fits(each, each_kind, numbers) for each in value)
    if kind.startswith("Mapping["):
        return isinstance(value, dict) and all(
            _fits(each, "str", numbers) for pair in value.items() for each in pair
        )
    if isinstance(value, int) and not numbers.low <= value <= numbers.high:
        return False
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is no text
    return type(value).__name__ == kind
