"""Messages to a subscriber that is about to return: the server holds them, instead of sending status 503 at once.

Only the leader of a replicated stream is subscribed to the stream's subjects. While another server takes over, which
takes milliseconds, or 0.3 s after a crash, no server is subscribed. The same is true while a stream with one replica
is moved. A message published in this time is held at its publisher's server, for up to HOLD_NS. If no subscriber
takes the message, its publisher gets the status. For GIVEN_UP_NS after that, publishers to the same subject get the
status at once.

nats-server sends the status at once; most client libraries then report an error to the application.
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
LOOK_NS = 10 * NS_PER_MS  # ns between two checks; new subscriptions of other servers cause a check at once
GIVEN_UP_NS = 10_000 * NS_PER_MS
HELD_MAX = 10_000  # maximum number of held messages
AT_ONCE_MAX = (
    # after a new subscription, up to this many messages are checked at once; more, at the end of the turn
    200
)
SIZE_MAX = 32 << 20  # maximum bytes of held messages
KNOWN_MAX = 10_000  # maximum number of remembered subjects
COST = 300  # bytes that a held message occupies in addition to its parts


@dataclass(frozen=True, slots=True)
class Held:
    """One held message, and the status line that its publisher gets if no subscriber takes the message."""

    account: Account
    session: ClientSession
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    refusal: bytes
    until_ns: int
    size: int  # bytes that count towards SIZE_MAX


class Awaited:
    """The messages that one server holds until a subscriber returns."""

    def __init__(self, host: Host, is_awaited: Callable[[str, bytes], bool]) -> None:
        """Begin without held messages.

        `is_awaited(account, subject)` must return whether the subject is that of a stream that may get a leader soon.
        """
        self._host = host
        self._is_awaited = is_awaited
        self._held: deque[Held] = deque()  # oldest first
        self._size = 0
        self._known: dict[tuple[str, bytes], bool] = {}  # results of `is_awaited`, while messages are held
        self._given_up: dict[
            tuple[str, bytes], int
        ] = {}  # subjects to which no subscriber returned -> ns until which further messages are not held
        self._timer: Timer | None = None
        # called with account and subject of each new subscription of another server
        self.on_subscribed: Callable[[str, bytes], None] | None = None

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
        """Hold a message without a receiver; return False if its publisher must get `refusal` at once instead."""
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
        """Check the held messages after this turn, since there is a new subscription."""
        if self._held:
            self._arm(0)

    def subscribed(self, account: str, subject: bytes) -> None:
        """Handle a new subscription of another server: check the held messages at once.

        If there are more than AT_ONCE_MAX, they are checked at the end of the turn.
        """
        if self.on_subscribed is not None:
            self.on_subscribed(account, subject)
        if len(self._held) > AT_ONCE_MAX:
            self._arm(0)
        elif self._held:
            self.look()

    def look(self) -> None:
        """Publish, in order, the held messages that now have a receiver; refuse those held for HOLD_NS or longer."""
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
