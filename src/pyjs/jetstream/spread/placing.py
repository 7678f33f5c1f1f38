"""The choice of the worker that gets a new stream, in pure functions.

A stream that copies others goes to the worker of its first origin, and a stream that others copy goes to the worker
of its first copy, since copying inside a worker costs least. Any other stream goes to the worker with the fewest
streams. If several workers have equally few, it goes to the last of them, because the first worker also directs. An
account with limits on memory, storage or tiers has all its streams in the first worker, which enforces such limits
exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyjs.config.options import AccountJetStreamOptions
    from pyjs.jetstream.config.stream import StreamConfig

DIRECTOR = 1  # the worker that directs
UNAVAILABLE = b"NATS/1.0 503\r\n\r\n"  # headers of the answer when the worker that should answer is away


def is_bound(limits: AccountJetStreamOptions) -> bool:
    """Return whether an account has limits because of which all its streams must be in the first worker."""
    return limits.max_memory >= 0 or limits.max_storage >= 0 or bool(limits.tiers)


def origins_in(body: bytes) -> list[str]:
    """Return the names of the mirror and of the sources in the JSON body of a request to create a stream.

    Invalid JSON and invalid fields are ignored here; such a request is refused later.
    """
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    given = given.get("config", given) if isinstance(given, dict) else {}
    if not isinstance(given, dict):
        return []
    sources = given.get("sources")
    found = [given.get("mirror"), *(sources if isinstance(sources, list) else [])]
    return [name for each in found if isinstance(each, dict) and isinstance(name := each.get("name"), str)]


def related(name: str, origins: Iterable[str], configs: Mapping[str, tuple[int, StreamConfig]]) -> int:
    """Return the number of the worker that has an origin or a copy of the stream `name`, or 0 if there is none.

    The first known stream of `origins` has priority over copies. `configs` maps the names of the account's streams to
    their workers and configurations.
    """
    for origin in origins:
        if origin in configs:
            return configs[origin][0]
    for worker, config in configs.values():
        copied = [config.mirror] if config.mirror is not None else config.sources
        if any(each.name == name for each in copied):
            return worker
    return 0


def least_loaded(counts: Mapping[int, int], workers: Iterable[int]) -> int:
    """Return the number of the worker with the fewest streams, or the highest such number if there are several."""
    return min(workers, key=lambda worker: (counts.get(worker, 0), -worker))
