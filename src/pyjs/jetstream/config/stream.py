"""The configuration of a stream: its options, each declared once.

A StreamConfig never changes after its creation: the compiled Stream copies the options it needs when the stream is
created and updated. (It is not frozen, because `same_as` edits its own copies.) This module knows nothing of limits
and conflicts (jetstream/rules/stream.py) or of request bodies (jetstream/config/stream_requests.py).

Source: nats.docs "Streams"; field order, names and the omission of empty fields probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyjs.jetstream.config.choices import (
    ASYNC,
    DEFAULT,
    FILE,
    INTEREST,
    LIMITS,
    MEMORY,
    NEW,
    NONE,
    OLD,
    S2,
    WORKQUEUE,
)
from pyjs.jetstream.config.declared import option, part, shape_of, struct_of
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
    enum,
    structs,
)
from pyjs.jetstream.config.level import API_LEVEL, META_LEVEL, META_REQUIRED_LEVEL, META_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

PEER_VERSION = "2.15.1"  # the nats-server version whose behaviour is implemented; shown to clients


@dataclass(repr=False, slots=True)
class Placement:
    """The requested cluster and server tags; they have no effect on a single server."""

    cluster: str = option(STRING, "The name of the cluster.")
    tags: tuple[str, ...] = option(STRINGS, "Tags that each server of the stream must have.")
    preferred: str = option(STRING, "The server that should lead; a request with this option is refused.")


@dataclass(repr=False, slots=True)
class ConsumerLimits:
    """The stream's limits for options of its consumers; 0 means no limit."""

    inactive_threshold_ns: int = option(DURATION, "Maximum and default of `inactive_threshold`.")
    max_ack_pending: int = option(INT, "Maximum and default of `max_ack_pending`.")


@dataclass(repr=False, slots=True)
class SubjectTransformConfig:
    """A transform from published to stored subjects. An empty source matches every subject."""

    src: str = option(STRING, "The subjects to transform.", always=True)
    dest: str = option(STRING, "The subject that replaces them.", always=True)


@dataclass(repr=False, slots=True)
class RepublishConfig:
    """The transform from stored to republished subjects; without a destination, nothing is republished."""

    src: str = option(STRING, "The subjects to publish again.", always=True)
    dest: str = option(STRING, "The subject under which they are published.", always=True)
    headers_only: bool = option(BOOL, "Publish headers without the payload.")


@dataclass(repr=False, slots=True)
class ExternalStream:
    """The subject prefixes for an origin in another account or domain."""

    api: str = option(STRING, "The prefix of the origin's API subjects.", always=True)
    deliver: str = option(STRING, "The prefix of the origin's deliver subjects.", always=True)


@dataclass(repr=False, slots=True)
class SourceConsumer:
    """An existing consumer of the origin, with the ack policy `flow_control`."""

    name: str = option(STRING, "The name of the consumer.")
    deliver_subject: str = option(STRING, "The subject to which the consumer delivers.")


@dataclass(repr=False, slots=True)
class StreamSource:
    """The origin of a mirror, or one of the origins of a stream with sources."""

    name: str = option(STRING, "The name of the origin.", always=True)
    opt_start_seq: int = option(UINT64, "The sequence to start at.")
    opt_start_time_ns: int | None = option(TIME, "The time to start at.")
    filter_subject: str = option(STRING, "The subjects to copy; empty: all.")
    subject_transforms: tuple[SubjectTransformConfig, ...] = option(
        structs(struct_of(SubjectTransformConfig), "[]server.SubjectTransformConfig"),
        "Subjects to copy, and the subjects under which their messages are stored.",
    )
    external: ExternalStream | None = option(part(ExternalStream), "The account or domain of the origin.")
    consumer: SourceConsumer | None = option(
        part(SourceConsumer, "StreamConsumerSource"),
        "An existing push consumer of the origin, with the ack policy `flow_control`.",
    )

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The subject filters, or () if every subject is copied."""
        if self.subject_transforms:
            return tuple((each.src or ">").encode() for each in self.subject_transforms)
        return (self.filter_subject.encode(),) if self.filter_subject else ()


@dataclass(repr=False, slots=True)
class StreamConfig:
    """The configuration of a stream; in all its limits, -1 means no limit."""

    name: str = option(STRING, "The name of the stream.", always=True, updatable=False)
    description: str = option(STRING, "A description for users.")
    subjects: tuple[str, ...] = option(
        STRINGS, "The subjects that the stream stores; empty: the name of the stream."
    )
    retention: str = option(
        enum(LIMITS, INTEREST, WORKQUEUE),
        "The rule for removing messages; an update cannot change it to or from `workqueue`.",
        always=True,
    )
    max_consumers: int = option(INT, "Maximum number of consumers.", -1, always=True)
    max_msgs: int = option(INT64, "Maximum number of messages.", -1, always=True)
    max_bytes: int = option(
        INT64, "Maximum size of all messages in bytes, with headers and metadata.", -1, always=True
    )
    max_age_ns: int = option(DURATION, "Maximum age of a message; 0: no limit.", always=True)
    max_msgs_per_subject: int = option(INT64, "Maximum number of messages of each subject.", -1, always=True)
    max_msg_size: int = option(
        INT32, "Maximum size of a message (headers and payload) in bytes.", -1, always=True
    )
    discard: str = option(
        enum(OLD, NEW), "At a limit, remove the oldest messages or refuse new ones.", always=True
    )
    storage: str = option(
        enum(MEMORY, FILE), "Where messages are stored.", FILE, always=True, updatable=False
    )
    num_replicas: int = option(INT, "Number of replicas; more than 1 needs a cluster.", 1, always=True)
    no_ack: bool = option(BOOL, "Do not acknowledge publishes.")
    duplicate_window_ns: int = option(
        DURATION,
        "Time for which message ids are stored; 0: 2 minutes, or `max_age` if that is shorter.",
    )
    placement: Placement | None = option(
        part(Placement), "Requirements for the servers that store the stream."
    )
    mirror: StreamSource | None = option(
        part(StreamSource),
        "The stream that this stream copies, with the same sequences; an update can only remove it.",
    )
    sources: tuple[StreamSource, ...] = option(
        structs(struct_of(StreamSource)), "Streams whose messages are copied."
    )
    compression: str = option(
        enum(NONE, S2, unknown_text="unknown compression algorithm"),
        "The compression of the stream's files.",
        always=True,
    )
    first_seq: int = option(UINT64, "The sequence of the first message.")
    subject_transform: SubjectTransformConfig | None = option(
        part(SubjectTransformConfig), "Changes the subjects under which messages are stored."
    )
    republish: RepublishConfig | None = option(
        part(RepublishConfig, "RePublish"), "Publishes stored messages again, under another subject."
    )
    allow_direct: bool = option(BOOL, "Messages can be read with direct get.", always=True)
    mirror_direct: bool = option(BOOL, "A mirror also answers direct gets for its origin.", always=True)
    discard_new_per_subject: bool = option(BOOL, "`discard: new` applies to `max_msgs_per_subject` too.")
    sealed: bool = option(
        BOOL, "No message can be added or removed; the option cannot be turned off.", always=True
    )
    deny_delete: bool = option(
        BOOL, "Messages cannot be deleted; the option cannot be turned off.", always=True
    )
    deny_purge: bool = option(
        BOOL, "The stream cannot be purged; the option cannot be turned off.", always=True
    )
    allow_rollup_hdrs: bool = option(
        BOOL, "The header Nats-Rollup of a message may remove earlier messages.", always=True
    )
    consumer_limits: ConsumerLimits = option(
        part(ConsumerLimits, "StreamConsumerLimits"),
        "Limits for the consumers of the stream.",
        ConsumerLimits(),
        always=True,
    )
    allow_msg_ttl: bool = option(
        BOOL, "Messages may have their own lifetime; the option cannot be turned off.", level=1, always=True
    )
    subject_delete_marker_ttl_ns: int = option(
        DURATION,
        "Lifetime of the marker that is stored when the last message of a subject expires; 0: no marker.",
        level=1,
    )
    allow_msg_counter: bool = option(
        BOOL, "Each subject is a counter to which messages add.", level=2, updatable=False
    )
    allow_atomic: bool = option(BOOL, "Accept atomic batches.", level=2)
    allow_msg_schedules: bool = option(
        BOOL, "Messages may be published later, or repeatedly; the option cannot be turned off.", level=2
    )
    persist_mode: str = option(
        enum(DEFAULT, ASYNC, ""),  # an empty word in a request means the default
        "`async`: acknowledgements do not wait for a sync, even with `sync_interval: always`.",
        level=2,
        updatable=False,
    )
    allow_batched: bool = option(
        BOOL, "Accept fast batches, in which only some messages are acknowledged.", level=4
    )
    metadata: Mapping[str, str] = option(STRING_MAP, "Names and values for applications.")

    def with_required_level(self) -> StreamConfig:
        """Return the configuration to store, with the required API level but without metadata for responses."""
        kept = {key: value for key, value in self.metadata.items() if key not in (META_VERSION, META_LEVEL)}
        shape = shape_of(StreamConfig)
        pairs = zip(shape.options, shape.values(self), strict=True)
        kept[META_REQUIRED_LEVEL] = str(
            max(each.level for each, value in pairs if value != each.zero or not each.level)
        )
        return replace(self, metadata=kept)

    def with_server_metadata(self) -> StreamConfig:
        """Return the configuration for responses, with the server's version and API level as metadata."""
        shown = {**self.metadata, META_VERSION: PEER_VERSION, META_LEVEL: str(API_LEVEL)}
        return replace(self, metadata=shown)

    def same_as(self, other: StreamConfig) -> bool:
        """Return whether both configurations are equal, apart from the metadata that servers add."""
        if self == other:
            return True
        level = {META_REQUIRED_LEVEL: ""}
        mine, theirs = self.with_required_level(), other.with_required_level()
        mine.metadata, theirs.metadata = {**mine.metadata, **level}, {**theirs.metadata, **level}
        return mine == theirs
