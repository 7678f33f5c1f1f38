"""Reports about streams as plain dicts, fields in the order of the wire: state, info, pages of them.

Shared by the API and monitoring. Source: nats.docs "JetStream wire API Reference", probed on nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING
from pyjs.base.gotext import time_text
from pyjs.jetstream.engine import JetStream
from pyjs.jetstream.stream import Stream

if TYPE_CHECKING:
    from typing import Any

SUBJECTS_PAGE = 100_000


def stream_state(
    stream: Stream, subjects: dict[str, int] | None = None, deleted: bool = False
) -> dict[str, Any]:
    """Return the `state` of a stream; with `subjects` (name to count) and the deleted sequences when asked."""
    store = stream.store
    out: dict[str, Any] = {
        "messages": store.msgs,
        "bytes": store.bytes,
        "first_seq": store.first_seq,
        "first_ts": time_text(store.first_ts),
        "last_seq": store.last_seq,
        "last_ts": time_text(store.last_ts),
    }
    num_subjects = store.num_subjects()
    if num_subjects:
        out["num_subjects"] = num_subjects
    if subjects:
        out["subjects"] = subjects
    num_deleted = store.num_deleted()
    if num_deleted:
        out["num_deleted"] = num_deleted
        if deleted:
            out["deleted"] = store.deleted()
    out["consumer_count"] = len(stream.consumers)
    return out


def stream_info(
    js: JetStream,
    stream: Stream,
    *,
    state: dict[str, Any] | None = None,
    listed: bool = False,
    domain: bool = True,
    cluster: bool = False,
) -> dict[str, Any]:
    """Return a StreamInfo; `listed` leaves out what only single answers show."""
    config = stream.config if listed else stream.config.with_server_metadata()
    out: dict[str, Any] = {
        "config": config.to_json_dict(),
        "created": time_text(stream.created_ns),
        "state": stream_state(stream) if state is None else state,
    }
    if domain and js.options.domain:
        out["domain"] = js.options.domain
    out |= inflow_report(js, stream)
    if cluster:
        out["cluster"] = {"leader": js.shared.server_name}
    out["ts"] = time_text(js.shared.clock.now_ns())
    return out


def inflow_report(js: JetStream, stream: Stream) -> dict[str, Any]:
    """Return the `mirror` or `sources` of a stream's report, nothing for a stream that copies nothing."""
    inflow = js.inflows.get(stream.name)
    if inflow is None:
        return {}
    rows = inflow.report()
    return {"mirror": rows[0]} if stream.config.mirror else {"sources": rows}


def subjects_page(stream: Stream, subject_filter: str, offset: int) -> tuple[dict[str, int], int, int]:
    """Return one page of subjects with their message counts, the total, and the offset in effect."""
    counts = stream.store.subject_counts(stream.store.make_filter((subject_filter.encode(),)))
    names = sorted(counts)
    offset = min(max(offset, 0), len(names))
    page = names[offset : offset + SUBJECTS_PAGE]
    return {name.decode("utf-8", "replace"): counts[name] for name in page}, len(names), offset
