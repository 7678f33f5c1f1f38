"""The deadlines of one client: for its login, and for reading its output.

Texts follow nats-server 2.15: tests/conformance/scenarios/auth for logins, and tests/unit/core/test_session.py for
slow consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.core.session import ClientSession


class Deadlines:
    """The timers for the login and the output of one session."""

    __slots__ = ("_login", "_session", "_write")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._login: Timer | None = None
        self._write: Timer | None = None  # set while the transport's buffer is full

    def await_login(self) -> None:
        """Close the client unless `logged_in` is called within the authentication timeout of the client's port."""
        session = self._session
        deadline_ns = session.started_at_ns + session.host.entrance(session.peer).auth_timeout_ns
        self._login = session.host.timers.at(deadline_ns, self._login_missed, session)

    def logged_in(self) -> None:
        """Cancel the deadline of the login."""
        _cancel(self._login)

    def await_reader(self) -> None:
        """Close the client as a slow consumer unless `reader_caught_up` is called within write_deadline."""
        host = self._session.host
        deadline_ns = host.clock.now_ns() + host.settings.write_deadline_ns
        _cancel(self._write)
        self._write = host.timers.at(deadline_ns, self._write_missed, self._session)

    def reader_caught_up(self) -> None:
        """Cancel the deadline of the output."""
        _cancel(self._write)

    def cancel(self) -> None:
        """Cancel both deadlines."""
        _cancel(self._login)
        _cancel(self._write)

    def _login_missed(self) -> None:
        self._session.close("Authentication Timeout", "Authentication Timeout")

    def _write_missed(self) -> None:
        session = self._session
        host = session.host
        host.slow_consumers += 1
        host.log.info(
            f"{session} - Slow Consumer Detected: WriteDeadline of {host.settings.write_deadline_ns / NS_PER_S:g}s "
            f"exceeded with {session.pending_size()} bytes queued"
        )
        session.close("Slow Consumer (Write Deadline)")


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
