"""Deletion of the consumers that one copy of a stream has at its origin.

An interest or workqueue origin stores messages for each consumer of a copy, including consumers of a former leader
and of a deleted copy. The names of all consumers of one copy begin with the same prefix, so any server that knows the
stream and the source can delete them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE
from pyjs.base.nuid import nuid, short_hash
from pyjs.jetstream.mirror.link_state import ANSWER_NS, Expected

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream

CHECK_NS = NS_PER_S  # time after which consumers should be deleted


def prefix_of(stream: str, created_ns: int, key: bytes) -> str:
    """Return the prefix of the names of a copy's consumers; `key` is the name of the source (places.key_of)."""
    return short_hash(f"{stream} {created_ns} {key.decode('utf-8', 'surrogateescape')}") + "-"


def api_subject(source: StreamSource, verb: str, name: str = "") -> bytes:
    """Return the API subject CONSUMER.<verb> for the consumers of the origin, or for the consumer `name`."""
    prefix = "$JS.API" if source.external is None else source.external.api.rstrip(".")
    return f"{prefix}.CONSUMER.{verb}.{source.name}{'.' if name else ''}{name}".encode()


class OriginConsumers:
    """The consumers that one copy of a stream has at its origin."""

    def __init__(self, js: JetStream, source: StreamSource, prefix: str) -> None:
        self._js = js
        self._source = source
        self._prefix = prefix
        self._but = ""
        self._unless: Callable[[], bool] | None = None
        self._found: list[str] = []  # names found so far
        self._names = Expected(js.account)

    def delete_all(self, *, but: str = "", unless: Callable[[], bool] | None = None) -> None:
        """Request the names of the origin's consumers; when they arrive, delete this copy's consumers except `but`.

        Nothing is deleted if `unless()` returns True when the names arrive.
        """
        self._but, self._unless, self._found = but, unless, []
        self._ask()

    def close(self) -> None:
        """Stop waiting for names."""
        self._names.end()

    def _ask(self) -> None:
        self.close()
        shared, account = self._js.shared, self._js.account
        reply = f"$JSC.R.{nuid(shared.rng)}".encode()
        self._names.subscription = account.subscribe_handler(reply, self._on_names)
        self._names.timer = shared.timers.at(shared.clock.now_ns() + ANSWER_NS, self.close)
        account.send(
            api_subject(self._source, "NAMES"), orjson.dumps({"offset": len(self._found)}), b"", reply
        )

    def _on_names(self, request: Request) -> None:
        self.close()
        try:
            answer = orjson.loads(request.payload)
            names, total = [str(name) for name in answer.get("consumers") or ()], int(answer.get("total", 0))
        except NONSENSE:
            return
        self._found += names
        if names and len(self._found) < total:
            self._ask()
            return
        if self._unless is not None and self._unless():
            return
        for name in self._found:
            if name.startswith(self._prefix) and name != self._but:
                self._js.account.send(api_subject(self._source, "DELETE", name), b"")


def delete_former(
    js: JetStream, source: StreamSource, prefix: str, origin: Stream, then: Callable[[], None]
) -> None:
    """Delete the consumers of a copy whose origin is on this server now; call `then` when they are gone.

    If there are no such consumers, do nothing. There are some if the origin was in another worker before this start.
    """
    former = _FormerConsumers(js, source, prefix, origin, then)
    if former.exist():
        former.delete()


class _FormerConsumers:
    """The consumers through which another worker read an origin that is on this server now."""

    def __init__(
        self, js: JetStream, source: StreamSource, prefix: str, origin: Stream, then: Callable[[], None]
    ) -> None:
        self._js = js
        self._source = source
        self._prefix = prefix
        self._origin = origin
        self._then = then  # called when they are deleted

    def exist(self) -> bool:
        return any(name.startswith(self._prefix) for name in self._origin.consumers)

    def delete(self) -> None:
        OriginConsumers(self._js, self._source, self._prefix).delete_all()
        self._js.shared.timers.at(self._js.shared.clock.now_ns() + CHECK_NS, self._check)

    def _check(self) -> None:
        if self._origin.closed:
            return
        if self.exist():
            self.delete()
        else:
            self._then()
