"""Reports about the mirror or the sources of a stream, as dicts with fields in the order of the API.

Positions and origins are handled by sourcing.py.
Source: nats.docs "StreamSourceInfo", probed on nats-server 2.15.1 (tests/conformance/scenarios/mirror, source).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.config.declared import as_json

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.jetstream.mirror.sourcing import SourceCopy

# nats-server polls an idle origin this often, in ns, so its reported `active` stays below
HEARTBEAT_NS = 1_000_000_000
COPIES_STEP = 16  # copiers counted between two yields, if each needs one step


def count_steps(copiers: Iterable[Copier]) -> Generator[None, None, None]:
    """Count the messages that are not copied yet, in steps; then the reports need no long counts."""
    for number, copier in enumerate(copiers):
        if number % COPIES_STEP == COPIES_STEP - 1:
            yield
        while not copier.count_some():
            yield


def shown(copy: SourceCopy, now_ns: int, *, lag: bool) -> dict[str, Any]:
    """Return the report about one mirror or source; omit the lag unless `lag` is set."""
    source, copier = copy.source, copy.copier
    out: dict[str, Any] = {"name": source.name}
    if source.external is not None:
        out["external"] = as_json(source.external)
    if lag:
        out["lag"] = copier.lag()
    if copier.stored and not copier.mirrors:
        out["seq"] = copier.stored
    out["active"] = _active_ns(copier, now_ns)
    if copier.error is not None:
        out["error"] = copier.error.as_json()
    if source.filter_subject and (copier.active_ns or copier.error or not copier.mirrors):
        out["filter_subject"] = source.filter_subject
    if source.subject_transforms:
        out["subject_transforms"] = [as_json(each) for each in source.subject_transforms]
    return out


def _active_ns(copier: Copier, now_ns: int) -> int:
    if copier.active_ns == 0:
        return -1
    since = max(0, now_ns - copier.active_ns)
    return since if copier.origin is None else since % HEARTBEAT_NS
