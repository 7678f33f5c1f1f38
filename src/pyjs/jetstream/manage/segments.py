"""Derives from a stream's configuration its stored metadata, and the size, age and codec of its segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.config.choices import LIMITS, S2
from pyjs.jetstream.config.declared import to_meta
from pyjs.store.format.outer_header import CODEC_ZSTD

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.config.stream import StreamConfig

SEGMENT_SIZE_MAX = 8 << 20
# bytes; for interest and workqueue streams, in which acks soon empty whole segments
SEGMENT_SIZE_QUEUE = 4 << 20
SEGMENT_SIZE_MIN = 64 << 10
SEGMENTS_PER_AGE = 8  # minimum number of segments for a stream whose messages expire


def segment_size(config: StreamConfig) -> int:
    """Return the maximum size of a stream's segments in bytes.

    A stream with a low `max_bytes` has smaller segments, so that the limit removes whole files.
    """
    size = SEGMENT_SIZE_MAX if config.retention == LIMITS else SEGMENT_SIZE_QUEUE
    if config.max_bytes > 0:
        size = max(SEGMENT_SIZE_MIN, min(size, config.max_bytes // 4))
    return size


def seal_age_ns(config: StreamConfig) -> int:
    """Return the age in ns at which a segment is sealed, so that expiry removes whole files; 0 means no age limit."""
    return config.max_age_ns // SEGMENTS_PER_AGE


def codec(config: StreamConfig) -> int:
    """Return the number of the codec that compresses a stream's sealed segments, or 0 for no compression."""
    return CODEC_ZSTD if config.compression == S2 else 0


def stream_values(config: StreamConfig, created_ns: int, group: int) -> dict[str, Any]:
    """Return the metadata of a stream to store; `group` identifies the log of a replica."""
    values: dict[str, Any] = {"created_ns": created_ns, "config": to_meta(config)}
    if config.num_replicas > 1:
        values["group"] = group
    return values | {"codec": "zstd"} if codec(config) else values
