"""The configuration of a stream: what a request may set, what is kept, what responses show.

A StreamConfig is a cold value, never changed once made: the compiled Stream copies what it needs once, at
creation and update. (It is not frozen: `same_as` changes copies of its own.) Knows nothing of limits
and conflicts (jetstream/rules/stream.py) or of request bodies (jetstream/config/stream_requests.py).

Source: nats.docs "Streams"; field order, names and what is left out when empty probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from pyjs.base.bounds import INT64, TIME_NS, UINT64, Range, wrapped_ns
from pyjs.base.gotext import moment_text, time_text
from pyjs.jetstream.config.json_strict import parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    from _typeshed import DataclassInstance

    T = TypeVar("T")

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

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields that are set, in the order of the wire."""
        out: dict[str, Any] = {}
        if self.cluster:
            out["cluster"] = self.cluster
        if self.tags:
            out["tags"] = list(self.tags)
        if self.preferred:
            out["preferred"] = self.preferred
        return out


@dataclass(repr=False, slots=True)
class ConsumerLimits:
    """What consumers of the stream may ask for; 0: anything."""

    inactive_threshold_ns: int = 0
    max_ack_pending: int = 0

    def to_json_dict(self) -> dict[str, int]:
        """Return the fields that are set, in the order of the wire."""
        out = {"inactive_threshold": self.inactive_threshold_ns, "max_ack_pending": self.max_ack_pending}
        return {name: value for name, value in out.items() if value}


@dataclass(repr=False, slots=True)
class SubjectTransformConfig:
    """Under which subject a message is stored; an empty source is every subject, an empty destination none."""

    src: str = ""
    dest: str = ""

    def to_json_dict(self) -> dict[str, str]:
        """Return the fields in the order of the wire."""
        return {"src": self.src, "dest": self.dest}


@dataclass(repr=False, slots=True)
class RepublishConfig:
    """Where messages are published once they are kept; an empty destination is nowhere."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields in the order of the wire."""
        out: dict[str, Any] = {"src": self.src, "dest": self.dest}
        return out | {"headers_only": True} if self.headers_only else out


@dataclass(repr=False, slots=True)
class ExternalStream:
    """Where the API of another account or domain is found, and where it delivers to."""

    api: str = ""
    deliver: str = ""

    def to_json_dict(self) -> dict[str, str]:
        """Return the fields in the order of the wire."""
        return {"api": self.api, "deliver": self.deliver}


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

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields that are set, in the order of the wire."""
        out: dict[str, Any] = {"name": self.name}
        if self.opt_start_seq:
            out["opt_start_seq"] = self.opt_start_seq
        if self.opt_start_time_ns is not None:
            out["opt_start_time"] = time_text(self.opt_start_time_ns)
        if self.filter_subject:
            out["filter_subject"] = self.filter_subject
        if self.subject_transforms:
            out["subject_transforms"] = [each.to_json_dict() for each in self.subject_transforms]
        if self.external:
            out["external"] = self.external.to_json_dict()
        return out

    def to_meta(self) -> dict[str, Any]:
        """Return plain values to be stored."""
        values = _plain(self)
        values["subject_transforms"] = [_plain(each) for each in self.subject_transforms]
        values["external"] = self.external and _plain(self.external)
        if (
            self.opt_start_time_ns is not None
            and wrapped_ns(self.opt_start_time_ns) != self.opt_start_time_ns
        ):
            values["opt_start_time_ns"] = moment_text(
                self.opt_start_time_ns
            )  # more than a stored number holds
        del values["consumer"]
        return values

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> StreamSource:
        """Return what `to_meta` wrote."""
        values = dict(meta)
        transforms = values.get("subject_transforms", ())
        values["subject_transforms"] = tuple(_checked(SubjectTransformConfig(**each)) for each in transforms)
        if values.get("external"):
            values["external"] = _checked(ExternalStream(**values["external"]))
        if isinstance(values.get("opt_start_time_ns"), str):
            values["opt_start_time_ns"] = parse_time_ns(values["opt_start_time_ns"])
        return _checked(cls(**values), TIME_NS)


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

    def to_json_dict(self) -> dict[str, Any]:
        """Return the configuration as responses show it, fields in the order of the wire."""
        out: dict[str, Any] = {"name": self.name}
        if self.description:
            out["description"] = self.description
        if self.subjects:
            out["subjects"] = list(self.subjects)
        out["retention"] = self.retention
        out["max_consumers"] = self.max_consumers
        out["max_msgs"] = self.max_msgs
        out["max_bytes"] = self.max_bytes
        out["max_age"] = self.max_age_ns
        out["max_msgs_per_subject"] = self.max_msgs_per_subject
        out["max_msg_size"] = self.max_msg_size
        out["discard"] = self.discard
        out["storage"] = self.storage
        out["num_replicas"] = self.num_replicas
        self._add_optional(out)
        out["allow_direct"] = self.allow_direct
        out["mirror_direct"] = self.mirror_direct
        if self.discard_new_per_subject:
            out["discard_new_per_subject"] = True
        for name in ("sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs"):
            out[name] = getattr(self, name)
        out["consumer_limits"] = self.consumer_limits.to_json_dict()
        out["allow_msg_ttl"] = self.allow_msg_ttl
        if self.subject_delete_marker_ttl_ns:
            out["subject_delete_marker_ttl"] = self.subject_delete_marker_ttl_ns
        if self.metadata:
            out["metadata"] = dict(sorted(self.metadata.items()))
        return out

    def _add_optional(self, out: dict[str, Any]) -> None:
        if self.no_ack:
            out["no_ack"] = True
        if self.duplicate_window_ns:
            out["duplicate_window"] = self.duplicate_window_ns
        if self.placement:
            out["placement"] = self.placement.to_json_dict()
        if self.mirror:
            out["mirror"] = self.mirror.to_json_dict()
        if self.sources:
            out["sources"] = [each.to_json_dict() for each in self.sources]
        out["compression"] = self.compression
        if self.first_seq:
            out["first_seq"] = self.first_seq
        if self.subject_transform:
            out["subject_transform"] = self.subject_transform.to_json_dict()
        if self.republish:
            out["republish"] = self.republish.to_json_dict()

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

    def to_meta(self) -> dict[str, Any]:
        """Return plain values to be stored."""
        values = _plain(self) | {"subjects": list(self.subjects), "metadata": dict(self.metadata)}
        values["placement"] = self.placement and _plain(self.placement)
        values["mirror"] = self.mirror and self.mirror.to_meta()
        values["sources"] = [each.to_meta() for each in self.sources]
        values["subject_transform"] = self.subject_transform and _plain(self.subject_transform)
        values["republish"] = self.republish and _plain(self.republish)
        values["consumer_limits"] = _plain(self.consumer_limits)
        return values

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> StreamConfig:
        """Return the configuration that `to_meta` wrote.

        Raises:
            ValueError: a field is unknown, as written by a newer version, or a value is none of its kind.
        """
        unknown = sorted(set(meta).difference(name for name, _, _ in _kinds(cls)))
        if unknown:
            raise ValueError(f"stream configuration has unknown fields {unknown}; a newer server wrote it")
        values = dict(meta)
        values["subjects"] = tuple(values.get("subjects", ()))
        if values.get("placement"):
            placement = dict(values["placement"])
            placement["tags"] = tuple(placement.get("tags", ()))
            values["placement"] = _checked(Placement(**placement))
        if values.get("mirror"):
            values["mirror"] = StreamSource.from_meta(values["mirror"])
        values["sources"] = tuple(StreamSource.from_meta(each) for each in values.get("sources", ()))
        if values.get("subject_transform"):
            values["subject_transform"] = _checked(SubjectTransformConfig(**values["subject_transform"]))
        if values.get("republish"):
            values["republish"] = _checked(RepublishConfig(**values["republish"]))
        values["consumer_limits"] = _checked(ConsumerLimits(**values.get("consumer_limits", {})))
        return _checked(cls(**values))


def _plain(of: DataclassInstance) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(of)}


def _checked(made: T, numbers: Range = STORED) -> T:
    """Return a record that was read from a file.

    Raises:
        ValueError: a value is not of the kind that its field is for.
    """
    for name, kind, default in _kinds(type(made)):
        value = getattr(made, name)
        if value == default and type(value) is type(default):
            continue  # most are: a start reads thousands of configurations
        if not _fits(value, kind, numbers):
            raise ValueError(f"{name} of the stream configuration is {value!r}")
    return made


def _kinds(of: type[Any]) -> tuple[tuple[str, str, object], ...]:
    """Return name, kind and default of each field."""
    known = _KINDS.get(of)
    if known is None:
        known = _KINDS[of] = tuple((each.name, str(each.type), each.default) for each in fields(of))
    return known


_KINDS: dict[type[object], tuple[tuple[str, str, object], ...]] = {}


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
