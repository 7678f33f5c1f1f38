"""Requests to a subscriber that is about to return: they wait for it, instead of getting status 503 at once.

Only the leader of a replicated stream is subscribed to the stream's subjects. While another server takes over, which
takes milliseconds, or 0.3 s after a crash, nobody is subscribed. A message that is published then waits at the
server of its publisher, up to HOLD_NS. What nobody took in that time gets the status; further messages to the same
subject get it at once, for GIVEN_UP_NS.

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
LOOK_NS = 10 * NS_PER_MS  # between two checks; new subscriptions of other servers are noticed at once
GIVEN_UP_NS = 10_000 * NS_PER_MS
HELD_MAX = 10_000  # messages
AT_ONCE_MAX = (
    200  # up to this many messages are checked at once after a new subscription; more, at the end of the turn
)
SIZE_MAX = 32 << 20  # bytes
KNOWN_MAX = 10_000  # subjects
COST = 300  # bytes of memory of a message beside its parts


@dataclass(frozen=True, slots=True)
class Held:
    """One message that waits, and the line with the status if it gets no receiver."""

    account: Account
    session: ClientSession
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    refusal: bytes
    until_ns: int
    size: int  # bytes that count


class Awaited:
    """The waiting messages of one server."""

    def __init__(self, host: Host, is_awaited: Callable[[str, bytes], bool]) -> None:
        """`is_awaited` tells whether a subject of an account has a replicated stream."""
        self._host = host
        self._is_awaited = is_awaited
        self._held: deque[Held] = deque()  # oldest first
        self._size = 0
        self._known: dict[tuple[str, bytes], bool] = {}  # answers of `is_awaited` while messages wait
        self._given_up: dict[
            tuple[str, bytes], int
        ] = {}  # subjects of earlier messages without a receiver -> time until which that counts
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
        """Hold a message without a receiver; return False if its publisher gets `refusal` at once."""
        key, size = (account.name, subject), len(subject) + len(headers) + len(payload) + COST
        now_ns = self._host.clock.now_ns()
        if len(self._held) >= HELD_MAX or self._size + size > SIZE_MAX or self._given_up.get(key, 0) > now_ns:
            return False
        if b"Nats-Trace-Only" in headers:
            return False
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._is_awaited(account.name, subject)
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
        if known:
            until_ns = now_ns + HOLD_NS
            self._held.append(
                Held(account, session, subject, reply, headers, payload, refusal, until_ns, size)
            )
            self._size += size
        self._arm()
        return known

    def look_soon(self) -> None:
        """Check after this turn, since there is a new subscription."""
        if self._held:
            self._arm(0)

    def subscribed(self) -> None:
        """Check at once after a new subscription of another server: later messages must not overtake waiting ones."""
        if len(self._held) > AT_ONCE_MAX:
            self._arm(0)
        elif self._held:
            self.look()

    def look(self) -> None:
        """Publish the messages that now have a receiver, in order; give up those that have waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held, self._size = self._held, deque(), 0
        now_ns = self._host.clock.now_ns()
        for each in held:
            if each.account.has_interest(each.subject) and _sent(each):
                continue
            if now_ns < each.until_ns:
                self._held.append(each)
                self._size += each.size
            else:
                self._give_up(each, now_ns)
        if self._held:
            self._arm()
        else:
            self._known.clear()

    def _give_up(self, held: Held, now_ns: int) -> None:
        if len(self._given_up) >= KNOWN_MAX:
            self._given_up.clear()
        self._given_up[held.account.name, held.subject] = now_ns + GIVEN_UP_NS
        if not held.session.closed_reason:
            held.session.send_line(held.refusal)

    def _arm(self, wait_ns: int = LOOK_NS) -> None:
        if self._timer is not None and wait_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.timers.at(self._host.clock.now_ns() + wait_ns, self.look)


def _sent(held: Held) -> bool:
    """Publish a message; return whether it had a receiver."""
    return held.account.send(held.subject, held.payload, held.headers, held.reply) > 0
