"""Answers to clients that are reconnecting; this server holds each answer until another server has the client.

A mailbox holds only messages to inboxes. A held message is forwarded one time to each server that now has the
subscription to the inbox, and reaches no other subscription there (cluster.forwarded). It also reaches no
subscription on this server, where subscribers and the mailboxes of other clients have received it already. If the
other server had the subscription before the message was published, the client gets the message twice, but clients
ignore the second answer to a request. While the client reconnects, messages to other
subjects do not reach it, as always in core NATS. Among them are deliveries of consumers, since a delivery has the
subject of its stream; the consumer delivers these messages again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.cluster.forwarded import Forwarded, send_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.route import Route
    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.subjects.sublist import Subscription

INBOX = b"_INBOX."
SIZE_MAX = 32 << 20  # maximum bytes of all held messages; further messages are lost
OVERHEAD = 400  # bytes of memory for a held message, in addition to its content


class _Held:
    """A message that one or more mailboxes hold."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.size = OVERHEAD + len(request.subject) + len(request.headers) + len(request.payload)
        self.boxes = 0
        self.told: set[str] = set()  # ids of the servers that got it for all matching subscriptions

    def message_for(self, box: Mailbox) -> Forwarded:
        """Return the message for the subscribers to the inbox of `box`, in the form that routes forward."""
        found = self.request
        return Forwarded(
            box.account.name, box.key[0], found.subject, found.reply, found.headers, found.payload
        )


class Mailbox:
    """A buffer for the messages to one inbox, while the clients that use the inbox connect to another server."""

    def __init__(self, mailboxes: Mailboxes, account: Account, subject: bytes) -> None:
        self.account = account
        self.key = (subject, b"")
        self.users = 0
        self.held: list[_Held] = []
        self._mailboxes = mailboxes
        self.subscription = account.subscribe_handler(subject, self._take)

    def _take(self, request: Request) -> None:
        self._mailboxes.take(self, request)

    def close_steps(self) -> Iterator[Step]:
        """Forward the held messages and close the mailbox; each step runs in a turn."""
        self._mailboxes.remove(self)
        self.account.unsubscribe(self.subscription)
        for held in self.held:
            self._mailboxes.send_on(self, held)
            yield None
        self.held.clear()


class Mailboxes:
    """All mailboxes of a server: one for each account and subject."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.size = 0  # bytes of all held messages
        self._in_use: dict[tuple[str, bytes], Mailbox] = {}
        self._open: dict[Subscription, Mailbox] = {}

    def open(self, account: Account, subjects: Iterable[bytes]) -> list[Mailbox]:
        """Return a mailbox for each inbox in `subjects`, and create those that do not exist.

        The caller must pass the mailboxes to `leave` later.
        """
        boxes = []
        for subject in subjects:
            if subject.startswith(INBOX):
                box = self._in_use.get((account.name, subject))
                if box is None:
                    box = self._in_use[account.name, subject] = Mailbox(self, account, subject)
                    self._open[box.subscription] = box
                box.users += 1
                boxes.append(box)
        return boxes

    def leave(self, boxes: Iterable[Mailbox]) -> list[Mailbox]:
        """Release `boxes` for one client; return those that no client uses, which the caller must close."""
        ended = []
        for box in boxes:
            box.users -= 1
            if not box.users:
                del self._in_use[box.account.name, box.key[0]]
                ended.append(box)
        return ended

    def take(self, box: Mailbox, request: Request) -> None:
        """Hold a message that `box` has received; a message to several mailboxes is held only once.

        If the held messages would exceed `SIZE_MAX` bytes, the message is lost. If `box` is being closed, the message
        is forwarded at once.
        """
        found = box.account.subs.match(request.subject)
        boxes = [self._open[each] for each in found if each in self._open]
        if box not in boxes:  # the message arrived while the mailbox was being closed
            self._send(box, _Held(request))
        elif boxes[0] is box:
            held = _Held(request)
            if self.size + held.size <= SIZE_MAX:
                self.size += held.size
                held.boxes = len(boxes)
                for each in boxes:
                    each.held.append(held)

    def remove(self, box: Mailbox) -> None:
        """Hold no more messages for `box`."""
        del self._open[box.subscription]

    def send_on(self, box: Mailbox, held: _Held) -> None:
        """Send a message that `box` holds to the servers that have a subscription to the mailbox's inbox."""
        self._send(box, held)
        held.boxes -= 1
        if not held.boxes:
            self.size -= held.size

    def _send(self, box: Mailbox, held: _Held) -> None:
        message = held.message_for(box)
        for server_id, route in {} if self.cluster is None else self.cluster.routes.items():
            remote = route.remote.get(box.account.name)
            found = None if remote is None else remote.subscriptions.get(box.key)
            if found is None or server_id in held.told:
                continue
            if not self._forward(route, message):  # then it goes to all matching subscriptions there
                held.told.add(server_id)
                send_only(box.account, message, (found,))

    def _forward(self, route: Route, message: Forwarded) -> bool:
        """Send a message to the subscriptions of one inbox at another server; return whether that was possible."""
        replication = None if self.cluster is None else self.cluster.replication
        return replication is not None and route.info is not None and replication.forward(route.info, message)
