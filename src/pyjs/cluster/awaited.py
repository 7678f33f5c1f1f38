"""Requests to a subscriber that is about to return: they wait for it, instead of a status 503 at once.

Only the leader of a replicated stream is subscribed to the stream's subjects. While another server takes over, which
takes milliseconds, or 0.3 s after a crash, nobody is subscribed. A message that is published then waits at the
server of its publisher, up to HOLD_NS. What nobody took in that time gets the status; further messages to the same
subject get it at once, until somebody subscribes.

nats-server sends the status at once, and most client libraries report it to the application.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.core.session import ClientSession

HOLD_NS = 2_000 * NS_PER_MS
LOOK_NS = 10 * NS_PER_MS  # between two looks; new subscriptions of other servers are seen at once
HELD_MAX = 10_000  # messages
SIZE_MAX = 32 << 20  # bytes
KNOWN_MAX = 10_000  # subjects


@dataclass(frozen=True, slots=True)
class Held:
    """One message that waits, and the line with the status in case nobody takes it."""

    account: Account
    session: ClientSession
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    refusal: bytes
    until_ns: int


class Awaited:
    """The waiting messages of one server."""

    def __init__(self, host: Host, is_awaited: Callable[[str, bytes], bool]) -> None:
        """`is_awaited` tells whether a subject of an account has a replicated stream."""
        self._host = host
        self._is_awaited = is_awaited
        self._held: deque[Held] = deque()  # oldest first
        self._size = 0
        self._known: dict[tuple[str, bytes], bool] = {}  # answers of `is_awaited` while messages wait
        self._given_up: set[tuple[str, bytes]] = set()  # nobody came for an earlier message
        self._timer: Timer | None = None

    def take(
        self,
        account: Account,
        session: ClientSession,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        refusal: bytes,
    ) -> bool:
        """Let a message wait that has no receiver; return False if its publisher gets `refusal` at once."""
        key, size = (account.name, subject), len(headers) + len(payload)
        if len(self._held) >= HELD_MAX or self._size + size > SIZE_MAX or key in self._given_up:
            return False
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._is_awaited(account.name, subject)
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
        if known:
            until_ns = self._host.clock.now_ns() + HOLD_NS
            self._held.append(Held(account, session, subject, reply, headers, payload, refusal, until_ns))
            self._size += size
        self._arm()
        return known

    def look_soon(self) -> None:
        """Look after this turn, since there is a new subscription."""
        if self._held or self._given_up:
            self._arm(0)

    def look(self) -> None:
        """Publish the messages that have a receiver now, in their order; give up those that waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._given_up = {key for key in self._given_up if not self._is_taken(*key)}
        held, self._held, self._size = self._held, deque(), 0
        now_ns = self._host.clock.now_ns()
        for each in held:
            if each.account.has_interest(each.subject):
                each.account.send(each.subject, each.payload, each.headers, each.reply)
            elif now_ns < each.until_ns:
                self._held.append(each)
                self._size += len(each.headers) + len(each.payload)
            else:
                self._give_up(each)
        if self._held:
            self._arm()
        else:
            self._known.clear()

    def _is_taken(self, account: str, subject: bytes) -> bool:
        found = self._host.accounts.get(account)
        return found is None or found.has_interest(subject)

    def _give_up(self, held: Held) -> None:
        if len(self._given_up) < KNOWN_MAX:
            self._given_up.add((held.account.name, held.subject))
        if not held.session.closed_reason:
            held.session.send_line(held.refusal)

    def _arm(self, wait_ns: int = LOOK_NS) -> None:
        if self._timer is not None and wait_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.timers.at(self._host.clock.now_ns() + wait_ns, self.look)
