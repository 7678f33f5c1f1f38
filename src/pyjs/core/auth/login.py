"""Login of one session: CONNECT, the password check, and changes of users by a reload.

A session makes one attempt at a time. While a thread or a service decides about an attempt, the input of the session
waits (`await_verdict`); this input is parsed after the decision. The authentication timeout is not extended.
Texts and their order follow nats-server 2.15: tests/conformance/scenarios/auth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyjs.base.gotext import printable, quoted, quoted_bytes
from pyjs.core.auth.handshake import BadConnect, parse_connect, with_credentials
from pyjs.core.auth.identity import log_label
from pyjs.core.auth.proxies import NOT_TRUSTED, REQUIRED, ProxyFault
from pyjs.core.auth.strangers import report_stranger
from pyjs.core.auth.users import Claim, User
from pyjs.core.link import RELOADED
from pyjs.wire.nkeys import signature_bytes

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.core.auth.permissions import Permissions
    from pyjs.core.auth.users import Authenticator
    from pyjs.core.session import ClientSession

VIOLATION = "Authorization Violation"
FAILURE = "Authentication Failure"
EXPIRED = "Authentication Expired", "User Authentication Expired"  # close reason, -ERR
TOO_MANY_SUBSCRIPTIONS = "Maximum Subscriptions Exceeded", "maximum subscriptions exceeded"
SIGNATURE_WORK = 1600  # in units of `Turn.input_left`; checking a signature takes some 0.1 ms
TYPES = {"nats": "STANDARD", "websocket": "WEBSOCKET", "in_process": "IN_PROCESS"}


class Attempt(Protocol):
    """Work for which a login waits, such as a password check in a thread."""

    def cancel(self) -> None:
        """Cancel the work, because the session that is waiting for it has ended."""


class Started(Attempt, Protocol):
    """An attempt that is started with `begin`."""

    def begin(self) -> None:
        """Start the work; its callback may be called at once."""


class Login:
    """The login of one session: its present attempt, and its expiry."""

    __slots__ = ("_attempt", "_authenticator", "_expiry", "_session", "label")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.label = ""  # appended to the name of the connection in log lines, after the first login
        self._attempt: Attempt | None = None  # the running check
        self._authenticator: Authenticator | None = None  # of `_attempt`
        self._expiry: Timer | None = None  # the end of the user's token

    def connect(self, line: bytes) -> None:
        """Handle CONNECT: log in at once, or after a check in a thread or by a service."""
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

    def default_user(self) -> User | None:
        """Return the user of a client that sends another operation before CONNECT, or None if CONNECT is required."""
        session, callouts = self._session, self._session.host.callouts
        user = self._entrance().default_user(TYPES[session.peer.kind])
        # A service that decides about clients is asked only after CONNECT.
        return None if callouts is not None and callouts.rules_for(session, user) is not None else user

    def cancel(self, reads: deque[bytes]) -> None:
        """Cancel the running check and the expiry of the token, and drop the input in `reads`.

        Called when the session has ended.
        """
        if reads and not self._session.connected:
            report_stranger(self._session, reads[0])
        reads.clear()
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None  # break the cycle: the attempt refers to this login
        if self._expiry is not None:
            self._expiry.cancel()

    def _log_in(self) -> None:
        session, authenticator = self._session, self._entrance()
        if session.options.proxy_sig and authenticator.proxies and not self._take_proxy(authenticator):
            self._finish(NOT_TRUSTED)
        elif session.host.trust is not None:
            self._wait_for(session.host.trust.log_in(session, self._answered))
        else:
            claim = self._claim()
            if not session.peer.proxy and authenticator.needs_proxy(claim.user):
                self._finish(REQUIRED)
            else:
                self._decide(claim, self._welcome)

    def _take_proxy(self, authenticator: Authenticator) -> bool:
        """Set the session's proxy to the trusted proxy that signed the nonce.

        Return False if no trusted proxy signed the nonce.
        """
        session = self._session
        if signature_bytes(session.options.proxy_sig) is None:
            session.host.log.debug(f"{session} - Proxy signature not valid base64")
        session.turn.input_left -= SIGNATURE_WORK * len(authenticator.proxies)
        signer = authenticator.proxies.signer(session.nonce, session.options.proxy_sig)
        session.peer = session.peer._replace(proxy=signer)
        return bool(signer)

    def _has_proxy(self) -> bool:
        """Return whether the client came directly, or through a trusted proxy."""
        proxy = self._session.peer.proxy
        return not proxy or proxy in self._entrance().proxies

    def _entrance(self) -> Authenticator:
        return self._session.host.entrance(self._session.peer).authenticator

    def _claim(self) -> Claim:
        session = self._session
        kind = TYPES[session.peer.kind]
        return self._entrance().claim(session.options, session.link.tls, session.nonce, kind)

    def _welcome(self, user: User | None) -> None:
        """Admit `user`, which was found in the configuration file, or refuse the client if `user` is None.

        If an authorization service decides about the client, ask that service instead.
        """
        session, callouts = self._session, self._session.host.callouts
        rules = None if callouts is None else callouts.rules_for(session, user)
        if callouts is None or rules is None:
            self._finish(user)
        else:
            self._wait_for(callouts.ask(session, rules, None, self._answered))

    def _wait_for(self, attempt: Started) -> None:
        """Start the attempt, and parse no more input until its result arrives."""
        self._session.await_verdict()
        self._attempt = attempt
        attempt.begin()

    def _answered(self, user: User | ProxyFault | None) -> None:
        self._attempt = None
        if not self._session.closed_reason:
            self._session.have_verdict()
            # A reload during the check may have removed the client's proxy.
            self._finish(user if self._has_proxy() else NOT_TRUSTED)

    def _finish(self, user: User | ProxyFault | None) -> None:
        session, options = self._session, self._session.options
        if isinstance(user, ProxyFault):
            session.host.log.debug(f"{session} - {user.text}")
            self._refuse(user.reason)
            return
        if user is None or options.account or options.new_account:
            self._refuse(FAILURE)
            return
        user = self._guarded(user)
        session.log_in(user)
        if not session.closed_reason:
            self.label = self.label or log_label(session)
            self._take_token(user)

    def _refuse(self, reason: str) -> None:
        session = self._session
        session.host.log.error(f"{session} - authentication error{self._who()}")
        session.close(reason, VIOLATION)

    def _guarded(self, user: User) -> User:
        """Return `user`, or a copy with fewer permissions if the user is in the account of an authorization service.

        The copy may not publish requests to that service.
        """
        callouts = self._session.host.callouts
        return user if callouts is None else callouts.guarded(user)

    def _who(self) -> str:
        options = self._session.options
        if options.nkey:
            return f" - Nkey {quoted(options.nkey)}"
        default = self._entrance().no_auth_user
        name = options.user or ("" if default is None or options.jwt or options.auth_token else default.name)
        if name or options.jwt:
            return f" - User {quoted(name)}" if name else ""
        return f" - Token {quoted('[REDACTED]')}" if options.auth_token else ""

    def _take_token(self, user: User) -> None:
        """Set the timer for the expiry of the user's token, and enforce the token's limit on subscriptions."""
        session, token = self._session, user.token
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if token is None:
            return
        if token.expires_at_ns:
            self._expiry = session.host.timers.at(token.expires_at_ns, self._expire, session)
        if session.num_subscriptions >= session.subscriptions_max:
            session.close(*TOO_MANY_SUBSCRIPTIONS)

    def _expire(self) -> None:
        self._session.close(*EXPIRED)

    def _decide(self, claim: Claim, then: Callable[[User | None], None]) -> None:
        """Verify `claim`; call `then`, now or later, with the user of the claim, or None if the claim is false."""
        session = self._session
        authenticator = self._authenticator = self._entrance()
        holds = authenticator.decide(claim)
        if holds is not None:
            then(claim.user if holds else None)
            return
        check = authenticator.check(claim, lambda matches: self._verdict(claim, matches, then))
        check.owner = (session.peer.ip, session.cid)
        self._attempt = check
        session.await_verdict()
        session.turn.jobs.append(check)

    def _verdict(self, claim: Claim, holds: bool, then: Callable[[User | None], None]) -> None:
        session = self._session
        self._attempt = None
        if session.closed_reason:
            return
        session.have_verdict()
        if self._entrance() is self._authenticator:
            then(claim.user if holds else None)
        elif then == self._welcome:
            self._log_in()  # a reload changed the users during the check: check again
        else:
            self.reauthorize()

    # -- reload ------------------------------------------------------------------------------------------------

    def reauthorize(self) -> None:
        """Apply changed users: close a client that is no longer allowed, or update the permissions of the client."""
        session = self._session
        if self._attempt is not None:
            return  # the running check will use the new users
        if not self._has_proxy():
            self._finish(NOT_TRUSTED)
            return
        if session.user is not None and session.user.token is not None:
            if session.host.trust is None:
                session.close(RELOADED)  # the service decides again when the client reconnects
            return  # in operator mode, only a new token of its account changes the user
        if session.awaiting_auth:
            if not self._entrance().required:
                session.enter()
            return
        claim = self._claim()
        if claim.user is None or claim.user.account != session.account.name:
            # nats-server sends no error to a user that was removed or moved to another account
            named = bool(session.options.user or session.options.nkey) or claim.user is not None
            session.close(RELOADED if named else FAILURE, "" if named else VIOLATION)
            return
        if not session.peer.proxy and self._entrance().needs_proxy(claim.user):
            self._finish(REQUIRED)
            return
        before = session.user
        session.take_permissions(self._guarded(claim.user))
        self._drop_forbidden()
        if not claim.free and (before is None or before.secret != claim.secret):
            self._decide(claim, self._stay)

    def change_permissions(self, permissions: Permissions | None) -> None:
        """Replace the permissions of the user, and remove subscriptions that the new ones do not allow."""
        user = self._session.user
        assert user is not None
        self._session.take_permissions(self._guarded(replace(user, permissions=permissions)))
        self._drop_forbidden()

    def _stay(self, user: User | None) -> None:
        if user is None:
            self._session.close(FAILURE, VIOLATION)

    def _drop_forbidden(self) -> None:
        """Remove subscriptions that are no longer allowed, and report each one; update the filters of the others."""
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
