"""The server's PINGs to one client: they measure the round-trip time and detect dead connections.

Intervals follow nats-server 2.15. The first PING is sent early, at a random time. A later PING is sent only after
an interval without input, or if the last PING was sent more than RTT_EVERY_NS ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.core.session import ClientSession

FIRST_PING_NS = 2 * NS_PER_S
RTT_EVERY_NS = 3600 * NS_PER_S


class Pings:
    """The server's PINGs to one client, and the round-trip time that they measure."""

    __slots__ = ("_outstanding", "_sent_at_ns", "_session", "_timer", "rtt_ns")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._timer: Timer | None = None
        self._outstanding = 0  # PINGs without a PONG
        self._sent_at_ns = 0  # time of the last PING
        self.rtt_ns = 0  # 0: not measured yet

    def begin(self) -> None:
        """Schedule the first PING, early and at a random time."""
        host = self._session.host
        interval = min(self._interval_ns, FIRST_PING_NS)
        self._schedule(interval + host.rng.below(max(1, interval // 5)))

    def cancel(self) -> None:
        """Stop sending PINGs."""
        if self._timer is not None:
            self._timer.cancel()

    def connected(self) -> None:
        """Until the first PONG, use the time that the client took to send CONNECT as its round-trip time."""
        if not self.rtt_ns:
            self.rtt_ns = max(1, self._session.turn.now - self._session.started_at_ns)

    def pong(self) -> None:
        """Handle the client's PONG, and measure the round-trip time if a PING was unanswered."""
        if self._outstanding:
            self.rtt_ns = max(1, self._session.turn.now - self._sent_at_ns)
        self._outstanding = 0

    @property
    def _interval_ns(self) -> int:
        return self._session.host.entrance(self._session.peer).ping_interval_ns

    def _schedule(self, after_ns: int) -> None:
        self.cancel()
        host = self._session.host
        self._timer = host.timers.at(host.clock.now_ns() + after_ns, self._due, self._session)

    def _due(self) -> None:
        """Send a PING if it is due (see the header); close the client if too many PINGs are unanswered."""
        session, settings = self._session, self._session.host.settings
        if not session.link.ready:
            self.begin()  # now a PING would disturb a TLS handshake: try again later
            return
        now_ns = session.host.clock.now_ns()
        quiet_ns = now_ns - session.last_activity_ns
        if quiet_ns >= self._interval_ns or now_ns - self._sent_at_ns > RTT_EVERY_NS:
            if self._outstanding + 1 > settings.ping_max:
                session.host.stale_connections += 1
                session.close("Stale Connection", "Stale Connection")
                return
            self._outstanding += 1
            self._sent_at_ns = now_ns
            session.send_line(b"PING\r\n")
        self._schedule(self._interval_ns)
