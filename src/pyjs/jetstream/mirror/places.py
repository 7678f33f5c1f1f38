"""The positions in an origin at which a mirror or source begins or continues, and the names of sources.

The functions use the stream that copies, the configured source, and the time at which the origin was created, but no
links, consumers or stored positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bounds import wrapped_ns
from pyjs.base.nuid import short_hash
from pyjs.jetstream.mirror.link_state import Place

if TYPE_CHECKING:
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.store.store import StreamStore


def key_of(source: StreamSource) -> bytes:
    """Return the name of a source in Nats-Stream-Source: origin, filters and destinations."""
    origin = source.name if source.external is None else f"{source.name}:{short_hash(source.external.api)}"
    if source.consumer is not None:
        origin += f":C={short_hash(source.consumer.name)}"
    filters, destinations = [source.filter_subject or ">"], [">"]
    if source.subject_transforms:
        filters = [each.src or ">" for each in source.subject_transforms]
        destinations = [each.dest or ">" for each in source.subject_transforms]
    return " ".join((origin, "\f".join(filters), "\f".join(destinations))).encode()


def first_copied(source: StreamSource) -> int:
    """Return the first sequence to copy, or 0 if it is unknown.

    From this sequence on, the origin may remove messages that were copied.
    """
    return max(source.opt_start_seq, 1) if source.opt_start_time_ns is None else 0


def first_mirrored(store: StreamStore, mirror: StreamSource, created_ns: int) -> int:
    """Return the first sequence that a mirror copied from its present origin, or 0 if it is unknown.

    The origin was created at `created_ns`.
    """
    oldest_ns = store.first_ts if store.msgs else store.last_ts
    return first_copied(mirror) if oldest_ns >= created_ns else store.catalogue.seq_at(created_ns)


def earliest_ns(store: StreamStore, source: StreamSource, recreated: bool) -> int | None:
    """Return the time in ns at which a source without a position begins, or None to begin with the first message."""
    start_ns = source.opt_start_time_ns
    if start_ns is not None:
        return wrapped_ns(max(start_ns, store.last_ts))
    if store.first_seq > 1 and store.last_ts and not recreated:
        return store.last_ts  # messages copied earlier may have been removed
    return None


def mirror_place(store: StreamStore, mirror: StreamSource, queued_since_ns: int | None) -> Place:
    """Return the position at which a mirror continues.

    `queued_since_ns` is the creation time of a workqueue origin, or None for any other origin. A workqueue origin
    delivers from its beginning, because it may have messages that were copied but not acknowledged.
    """
    if not store.msgs and not store.first_seq:
        return Place(mirror.opt_start_seq, mirror.opt_start_time_ns, b"")
    seq = store.last_seq + 1
    if queued_since_ns is not None:
        seq = min(seq, first_mirrored(store, mirror, queued_since_ns) or seq)
    return Place(seq, None, b"")


def source_place(
    store: StreamStore, source: StreamSource, position: tuple[int, bytes], queued: bool
) -> Place:
    """Return the position at which a source continues after `position`.

    If `queued` is set, the origin is a work queue, and the source begins at the first message that it is to copy.
    """
    seq, ident = position
    return Place(min(seq + 1, (first_copied(source) if queued else 0) or seq + 1), None, ident)
