"""The subscriptions of one stream's direct gets.

A stream that does not allow them has none, so that the client hears 503 no responders. A mirror may have those of
its origin beside its own: each request goes to one of them. What reads the requests
(direct.py) is loaded by the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.account import Account
from pyjs.core.sink import PySink, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.jetstream.api.direct import DirectGet
    from pyjs.jetstream.stream import Stream
    from pyjs.subjects.sublist import Subscription

QUEUE = b"_zzz_"  # a stream and its mirrors share the requests


class DirectSeat:
    """Where direct gets of one stream arrive."""

    def __init__(self, account: Account, stream: Stream, domain: str, name: str) -> None:
        """Take requests for the stream called `name`: the stream's own, or that of its origin."""
        self._account = account
        self._stream = stream
        self._reader: DirectGet | None = None
        apis = ["$JS.API", f"$JS.{domain}.API"] if domain else ["$JS.API"]
        subjects = [f"{api}.DIRECT.GET.{name}".encode() for api in apis]
        self._prefixes = tuple(subject + b"." for subject in subjects)
        self._subscriptions = [
            *(self._subscribe(subject, self._get) for subject in subjects),
            *(self._subscribe(subject + b".>", self._get_last) for subject in subjects),
        ]

    def _subscribe(self, subject: bytes, handler: Callable[[Request], None]) -> Subscription:
        return self._account.subscribe(subject, PySink(self._account.turn, handler), QUEUE)

    def close(self) -> None:
        """Answer no more."""
        for subscription in self._subscriptions:
            self._account.unsubscribe(subscription)

    def _get(self, request: Request) -> None:
        self._loaded().get(request)

    def _get_last(self, request: Request) -> None:
        self._loaded().get_last(request)

    def _loaded(self) -> DirectGet:
        if self._reader is None:
            from pyjs.jetstream.api.direct import DirectGet

            self._reader = DirectGet(self._account, self._stream, self._prefixes)
        return self._reader
