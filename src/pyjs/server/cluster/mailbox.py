"""Answers to a client between two servers: they are held here until another server has the client.

Holds only what is published to inboxes. Such a message may come twice, here and at the other server, and clients
ignore the second answer to a request. Other messages are lost meanwhile, as always in core NATS; those of a consumer,
which have the subjects of their stream, are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request

INBOX = b"_INBOX."
SIZE_MAX = 1 << 20  # bytes for one client; more are lost


class Mailbox:
    """The inboxes of one client that has left this server."""

    def __init__(self, account: Account, subjects: Iterable[bytes]) -> None:
        """Take what comes to `subjects`, as far as they are inboxes."""
        self.keys = [(subject, b"") for subject in subjects if subject.startswith(INBOX)]
        self._account = account
        self._held: list[Request] = []
        self._size = 0
        self._subscriptions = [account.subscribe_handler(subject, self._take) for subject, _ in self.keys]

    def _take(self, request: Request) -> None:
        size = len(request.subject) + len(request.headers) + len(request.payload)
        if request.subject.startswith(INBOX) and self._size + size <= SIZE_MAX:
            self._size += size
            self._held.append(request)

    def close_steps(self) -> Iterator[Step]:
        """Send everything on, and hold no more; in a turn."""
        for subscription in self._subscriptions:
            self._account.unsubscribe(subscription)
        for held in self._held:
            self._account.send(held.subject, held.payload, held.headers, held.reply)
        yield from ()
