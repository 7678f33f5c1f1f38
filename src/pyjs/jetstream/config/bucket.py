"""Key-value buckets and object stores: their options, and the configurations of their streams.

A bucket is a stream with a configuration on which its clients agree; servers know nothing of buckets. The stream is
the same as the one that the `nats` command creates.

Source: ADR-8 and ADR-20; nats.go, jetstream/kv.go and jetstream/object.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyjs.jetstream.config.choices import FILE, MEMORY, NEW, NONE, S2
from pyjs.jetstream.config.declared import option, part, struct_of
from pyjs.jetstream.config.json_strict import (
    BOOL,
    DURATION,
    INT,
    INT32,
    INT64,
    STRING,
    STRING_MAP,
    enum,
    structs,
)
from pyjs.jetstream.config.stream import (
    Placement,
    RepublishConfig,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

KV, OBJECTS = "KV_", "OBJ_"  # the prefixes of the names of streams
HISTORY_MAX = 64
WINDOW_NS = 120_000_000_000  # the clients set the duplicate window to 2 minutes, or `ttl` if that is shorter


@dataclass(repr=False, slots=True)
class KeyValueConfig:
    """The configuration of a key-value bucket. The stream of the bucket B is KV_B."""

    description: str = option(STRING, "A description for users.")
    history: int = option(INT, "Number of values stored for each key, from 1 to 64.", 1)
    ttl_ns: int = option(DURATION, "Maximum age of a value; 0: no limit.")
    max_value_size: int = option(INT32, "Maximum size of a value in bytes.", -1)
    max_bytes: int = option(INT64, "Maximum size of the bucket in bytes.", -1)
    storage: str = option(enum(MEMORY, FILE), "Where values are stored.", FILE, updatable=False)
    replicas: int = option(INT, "Number of replicas; more than 1 needs a cluster.", 1)
    placement: Placement | None = option(
        part(Placement), "Requirements for the servers that store the bucket."
    )
    republish: RepublishConfig | None = option(
        part(RepublishConfig, "RePublish"), "Publishes stored values again, under another subject."
    )
    mirror: StreamSource | None = option(part(StreamSource), "The bucket that this bucket copies.")
    sources: tuple[StreamSource, ...] = option(
        structs(struct_of(StreamSource)), "Buckets whose values are copied."
    )
    compression: bool = option(BOOL, "Compress the files.")
    limit_marker_ttl_ns: int = option(
        DURATION, "Lifetime of the marker that is stored when a key expires; 0: no marker."
    )
    allow_msg_ttl: bool = option(
        BOOL, "Values may have their own lifetime; `limit_marker_ttl` also turns this on."
    )
    allow_direct: bool = option(BOOL, "Values can be read with direct get.", True)
    metadata: Mapping[str, str] = option(STRING_MAP, "Names and values for applications.")

    def stream(self, bucket: str) -> StreamConfig:
        """Return the configuration of the stream for the bucket named `bucket`."""
        made = StreamConfig(
            name=KV + bucket,
            description=self.description,
            subjects=() if self.mirror is not None else (f"$KV.{bucket}.>",),
            max_msgs_per_subject=self.history,
            max_bytes=self.max_bytes or -1,
            max_age_ns=self.ttl_ns,
            max_msg_size=self.max_value_size or -1,
            discard=NEW,
            storage=self.storage,
            num_replicas=self.replicas,
            duplicate_window_ns=min(self.ttl_ns, WINDOW_NS) or WINDOW_NS,
            placement=self.placement,
            compression=S2 if self.compression else NONE,
            republish=self.republish,
            allow_direct=self.allow_direct,
            deny_delete=True,
            allow_rollup_hdrs=True,
            allow_msg_ttl=self.allow_msg_ttl or self.limit_marker_ttl_ns > 0,
            subject_delete_marker_ttl_ns=self.limit_marker_ttl_ns,
            metadata=self.metadata,
        )
        if self.mirror is not None:
            origin = replace(self.mirror, name=_stream_of(self.mirror.name))
            return replace(made, mirror=origin, mirror_direct=True)
        return replace(made, sources=tuple(_source(each, bucket) for each in self.sources))


def _stream_of(name: str) -> str:
    return name if name.startswith(KV) else KV + name


def _source(source: StreamSource, bucket: str) -> StreamSource:
    """Return `source` as clients complete it, with a transform from the keys of its bucket to those of `bucket`.

    A source that has transforms is returned unchanged.
    """
    if source.subject_transforms:
        return source
    origin = source.name.removeprefix(KV)
    source = replace(source, name=KV + origin)
    if source.external is not None and origin == bucket:
        return source
    return replace(
        source, subject_transforms=(SubjectTransformConfig(src=f"$KV.{origin}.>", dest=f"$KV.{bucket}.>"),)
    )


@dataclass(repr=False, slots=True)
class ObjectStoreConfig:
    """The configuration of an object store. The stream of the store B is OBJ_B."""

    description: str = option(STRING, "A description for users.")
    ttl_ns: int = option(DURATION, "Maximum age of an object; 0: no limit.")
    max_bytes: int = option(INT64, "Maximum size of the store in bytes.", -1)
    storage: str = option(enum(MEMORY, FILE), "Where objects are stored.", FILE, updatable=False)
    replicas: int = option(INT, "Number of replicas; more than 1 needs a cluster.", 1)
    placement: Placement | None = option(
        part(Placement), "Requirements for the servers that store the object store."
    )
    compression: bool = option(BOOL, "Compress the files.")
    metadata: Mapping[str, str] = option(STRING_MAP, "Names and values for applications.")

    def stream(self, bucket: str) -> StreamConfig:
        """Return the configuration of the stream for the object store named `bucket`."""
        return StreamConfig(
            name=OBJECTS + bucket,
            description=self.description,
            subjects=(f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"),
            max_bytes=self.max_bytes or -1,
            max_age_ns=self.ttl_ns,
            discard=NEW,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            compression=S2 if self.compression else NONE,
            allow_direct=True,
            allow_rollup_hdrs=True,
            metadata=self.metadata,
        )
