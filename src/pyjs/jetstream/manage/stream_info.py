"""Reports about streams, as dicts with fields in the order of the API: state, info, pages of subjects.

The API and the monitoring pages use these reports. Source: nats.docs "JetStream wire API Reference", probed on
nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.gotext import time_text
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.index.subject_walk import SubjectWalk

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from orjson import Fragment

    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.store.index.filter import StoreFilter
    from pyjs.store.store import StreamStore

SUBJECTS_PAGE = 100_000
LOOK_STEP = 10_000  # number of subjects compared with a filter between two yields: about a millisecond
SUBJECTS_STEP = 2_000  # number of subjects or deleted sequences read between two yields: about a millisecond
DELETED_STEP = 20_000


def stream_state(
    stream: Stream, subjects: Fragment | None = None, deleted: Fragment | None = None
) -> dict[str, Any]:
    """Return the `state` of a stream; `subjects` and `deleted` are JSON, or None to omit them."""
    store = stream.store
    out: dict[str, Any] = {
        "messages": store.msgs,
        "bytes": store.bytes,
        "first_seq": store.first_seq,
        "first_ts": time_text(store.first_ts),
        "last_seq": store.last_seq,
        "last_ts": time_text(store.last_ts),
    }
    num_subjects = store.catalogue.num_subjects()
    if num_subjects:
        out["num_subjects"] = num_subjects
    if subjects is not None:
        out["subjects"] = subjects
    num_deleted = store.catalogue.num_deleted()
    if num_deleted:
        out["num_deleted"] = num_deleted
        if deleted is not None:
            out["deleted"] = deleted
    if store.lost is not None:
        _, seqs, size = store.lost
        out["lost"] = {"msgs": seqs, "bytes": size}
    out["consumer_count"] = sum(not consumer.config.direct for consumer in stream.consumers.values())
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
    """Return the StreamInfo of a stream; with `listed`, omit the metadata that the server adds to the configuration.

    `state` is used in place of the current state. `domain` allows the field `domain`. `cluster` adds the fields about
    the cluster that only the answer to STREAM.INFO has. The call may take long if the stream is a mirror or has
    sources, unless `know_lag` has just ended.
    """
    config = stream.config
    if js.shared.member is not None:
        config = js.shared.member.reports.shown_config(js, stream)
    config = config if listed else config.with_server_metadata()
    out: dict[str, Any] = {
        "config": as_json(config),
        "created": time_text(stream.created_ns),
        "state": stream_state(stream) if state is None else state,
    }
    if domain and js.options.domain:
        out["domain"] = js.options.domain
    replicated = js.shared.replicated
    if js.shared.member is not None:
        out["cluster"] = js.shared.member.reports.stream(js, stream)
    elif replicated is not None and replicated.is_replica(stream):
        out["cluster"] = replicated.cluster_fields(stream)
    elif cluster:
        out["cluster"] = {"leader": js.shared.server_name}
    out |= inflow_report(js, stream)
    if cluster and js.shared.member is not None:
        out |= js.shared.member.reports.alternates(js, stream)
    out["ts"] = time_text(js.shared.clock.wall_ns())
    return out


def away_info(config: StreamConfig, created_ns: int, cluster: dict[str, Any], now_ns: int) -> dict[str, Any]:
    """Return the StreamInfo that a list shows for a stream whose servers are all offline.

    `now_ns` is the wall time.
    """
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "first_ts": time_text(0), "last_seq": 0}
    return {
        "config": as_json(config),
        "created": time_text(created_ns),
        "state": {**state, "last_ts": time_text(0), "consumer_count": 0},
        "cluster": cluster,
        "ts": time_text(now_ns),
    }


def know_lag(js: JetStream, stream: Stream) -> Generator[None, None, None]:
    """Count the lags of a mirror or of sources in steps, for the report of the stream."""
    inflow = js.inflows.get(stream.name)
    if inflow is not None:
        yield from inflow.count_steps()


def inflow_report(js: JetStream, stream: Stream, *, lag: bool = True) -> dict[str, Any]:
    """Return the field `mirror` or `sources` of a stream's report, or {} if the stream has none.

    With `lag`, this may take long unless `know_lag` has just ended.
    """
    inflow = js.inflows.get(stream.name)
    if inflow is None:
        return {}
    rows = inflow.report(lag=lag)
    return {"mirror": rows[0]} if stream.config.mirror else {"sources": rows}


def know_subjects(store: StreamStore, subjects: StoreFilter) -> Generator[None, None, None]:
    """Prepare the index of a store for a search with the filter `subjects`, in steps."""
    while not store.catalogue.learn_subjects(subjects, SUBJECTS_STEP):
        yield


def subjects_page(
    stream: Stream, subject_filter: str, offset: int
) -> Generator[None, None, tuple[Fragment | None, int, int]]:
    """Return a page of subjects with their message counts as JSON, the total number, and the offset of the page.

    The page is None if it is empty. An offset beyond the end is returned unchanged, as by nats-server.
    """
    store = stream.store
    wanted = store.make_filter((subject_filter.encode(),))
    yield from know_subjects(store, wanted)
    walk = SubjectWalk(store.catalogue, wanted)
    while not walk.look(LOOK_STEP):
        yield
    offset = max(offset, 0)
    walk.skip(min(offset, walk.total))
    parts: list[bytes] = []
    for _ in range(0, SUBJECTS_PAGE, SUBJECTS_STEP):
        counts = walk.take(SUBJECTS_STEP)
        if counts:
            named = {name.decode("utf-8", "replace"): count for name, count in counts.items()}
            parts.append(orjson.dumps(named)[1:-1])
        if walk.done:
            break
        yield
    page = orjson.Fragment(b"{" + b",".join(parts) + b"}") if parts else None
    return page, walk.total, offset


def deleted_details(stream: Stream) -> Generator[None, None, Fragment]:
    """Return the deleted sequences of a stream as a JSON array, in steps."""
    store, after = stream.store, 0
    parts: list[bytes] = []
    while found := store.catalogue.deleted(DELETED_STEP, after):
        parts.append(orjson.dumps(found)[1:-1])
        after = found[-1]
        yield
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")
