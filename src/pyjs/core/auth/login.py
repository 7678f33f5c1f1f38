"""Login of one session: CONNECT, the check of the password, and users changed by a reload.

One attempt at a time: while a thread checks a password, the input of the session waits (`await_verdict`) and is
parsed after the verdict. The authentication timeout continues meanwhile. Texts and their order as nats-server 2.15:
tests/conformance/scenarios/auth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import printable, quoted, quoted_bytes
from pyjs.core.auth.handshake import BadConnect, parse_connect, with_credentials
from pyjs.core.auth.users import Claim, PasswordCheck, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.auth.users import Authenticator
    from pyjs.core.session import ClientSession

VIOLATION = "Authorization Violation"
FAILURE = "Authentication Failure"


class Login:
    """The login of one session."""

    __slots__ = ("_attempt", "_authenticator", "_session")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._attempt: PasswordCheck | None = None  # the running check
        self._authenticator: Authenticator | None = None  # of `_attempt`

    def connect(self, line: bytes) -> None:
        """Handle CONNECT: log in at once, or after a check of the password in a thread."""
        session = self._session
        try:
            session.options = with_credentials(parse_connect(line, session.options), session.peer.credentials)
        except BadConnect as error:
            session.host.log.error(f"{session} - {printable(str(error))}")
            session.close("Protocol Violation")
            return
        if session.connected:
            session.drop_subscriptions()
        self._log_in()

    def cancel(self) -> None:
        """Cancel the running check: the session has ended."""
        if self._attempt is not None:
            self._attempt.cancelled = True

    def _log_in(self) -> None:
        session = self._session
        authenticator = session.host.entrance(session.peer).authenticator
        claim = authenticator.claim(session.options, session.link.tls, session.nonce)
        self._decide(claim, self._welcome)

    def _welcome(self, user: User | None) -> None:
        session, options = self._session, self._session.options
        if user is None or options.account or options.new_account:
            who = f"Nkey {quoted(options.nkey)}" if options.nkey else f"User {quoted(options.user)}"
            session.host.log.error(f"{session} - authentication error - {who}")
            session.close(FAILURE, VIOLATION)
        else:
            session.log_in(user)

    def _decide(self, claim: Claim, then: Callable[[User | None], None]) -> None:
        """Verify `claim`; call `then` with the user or None, now or in a later turn."""
        session = self._session
        authenticator = self._authenticator = session.host.entrance(session.peer).authenticator
        holds = authenticator.decide(claim)
        if holds is not None:
            then(claim.user if holds else None)
            return
        self._attempt = authenticator.check(claim, lambda matches: self._verdict(claim, matches, then))
        self._attempt.owner = (session.peer.ip, session.cid)
        session.await_verdict()
        session.turn.jobs.append(self._attempt)

    def _verdict(self, claim: Claim, holds: bool, then: Callable[[User | None], None]) -> None:
        session = self._session
        self._attempt = None
        if session.closed_reason:
            return
        session.have_verdict()
        if session.host.entrance(session.peer).authenticator is self._authenticator:
            then(claim.user if holds else None)
        elif then == self._welcome:
            self._log_in()  # a reload changed the users meanwhile
        else:
            self.reauthorize()

    # -- reload ------------------------------------------------------------------------------------------------

    def reauthorize(self) -> None:
        """Apply changed users: close a client that is no longer allowed, and update the others' permissions."""
        session = self._session
        if self._attempt is not None:
            return  # the verdict notices the new users
        if session.awaiting_auth:
            if not session.host.entrance(session.peer).authenticator.required:
                session.enter()
            return
        claim = session.host.entrance(session.peer).authenticator.claim(
            session.options, session.link.tls, session.nonce
        )
        if claim.user is None or claim.user.account != session.account.name:
            # nats-server says nothing to a user that is gone or has moved, see tests/conformance/test_reload.py
            named = bool(session.options.user or session.options.nkey) or claim.user is not None
            session.close("Client Closed" if named else FAILURE, "" if named else VIOLATION)
            return
        before = session.user
        session.take_permissions(claim.user)
        self._drop_forbidden()
        if not claim.free and (before is None or before.secret != claim.secret):
            self._decide(claim, self._stay)

    def _stay(self, user: User | None) -> None:
        if user is None:
            self._session.close(FAILURE, VIOLATION)

    def _drop_forbidden(self) -> None:
        """Remove subscriptions that are no longer allowed, and report each; filter the others again."""
        session, permissions = self._session, self._session.permissions
        for sub in list(session.subscriptions.values()):
            allowed = permissions is None or permissions.may_subscribe(sub.subject, sub.queue)
            filtered = (
                allowed and permissions is not None and permissions.filters_messages(sub.subject, sub.queue)
            )
            if allowed and not filtered and not sub.filtered:
                continue
            session.account.unsubscribe(sub)
            if allowed:
                sub.closed = False
                sub.filtered = filtered
                session.account.add(sub)
            else:
                del session.subscriptions[sub.sid]
                session.send_error(
                    f"Permissions Violation for Subscription to {quoted_bytes(sub.subject)}"
                    f" (sid {quoted_bytes(sub.sid)})"
                )
