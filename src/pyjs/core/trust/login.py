"""Logins by token: a thread decodes the token and checks the signature, then the rules of the account apply.

Source: order of checks and their debug lines follow nats-server 2.15 (tests/conformance/test_jwt_login.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.claims.fields import are_blocking
from pyjs.claims.roles import (
    TYPE_OF_PEER,
    BadTemplate,
    Subjects,
    filled_grant,
    known_types,
    may_come_from,
    seconds_allowed,
)
from pyjs.claims.token import TokenFault, decode
from pyjs.claims.user import Grant, UserClaims, user_issues, user_of
from pyjs.core.auth.proxies import REQUIRED, ProxyFault
from pyjs.core.auth.users import User, UserToken
from pyjs.core.job import Job, JobQueue
from pyjs.core.trust.convert import limit_of, permissions_of
from pyjs.wire.nkeys import USER, public_key, signature_bytes, verifies

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.session import ClientSession
    from pyjs.core.trust.accounts import TrustedAccount, TrustedAccounts
    from pyjs.core.trust.callouts import Callout, Callouts

    Decided = Callable[["User | ProxyFault | None"], None]


class Refused(Exception):
    """Raised when a login is refused; the exception's message is for the log."""

    def __init__(self, text: str, *, is_error: bool = False, fault: ProxyFault | None = None) -> None:
        super().__init__(text)
        self.is_error = is_error  # logged even if debug is off
        self.fault = fault


class TokenCheck(Job):
    """A job that decodes the token of a client, and checks that the client signed the nonce."""

    queue = JobQueue.COMPUTE

    def __init__(
        self,
        texts: tuple[str, ...],
        nonce: str,
        signature: str,
        done: Callable[[TokenCheck], None],
    ) -> None:
        self._texts = texts  # candidates; the first one that is the token of a user is used
        self._nonce = nonce
        self._signature = signature
        self._done = done
        self.cancelled = False  # the result is no longer needed
        self.user: UserClaims | None = None
        self.text = ""
        self.fault = "Authentication requires a user JWT"
        self.signature_fault = ""  # "": the nonce was signed by the user

    def run(self) -> None:
        """Decode the token and verify the signature."""
        if self.cancelled:
            return
        for text in self._texts:
            try:
                self.user, self.text = user_of(decode(text)), text
                break
            except TokenFault as fault:
                self.fault = f"User JWT not valid: {fault}"
        if self.user is not None:
            self.signature_fault = self._fault_of_signature(self.user.head.subject)

    def _fault_of_signature(self, subject: str) -> str:
        if not self._signature:
            return "Signature missing"
        made = signature_bytes(self._signature)
        if made is None:
            return "Signature not valid base64"
        key = public_key(subject, USER)
        if key is None:
            return "User nkey not valid: nkeys: invalid public key"
        return "" if verifies(self._nonce.encode(), made, key) else "Signature not verified"

    def finish(self, failure: Exception | None) -> None:
        """Call `done` with this check, unless the check was cancelled."""
        if failure is not None:
            self.user = None
        if not self.cancelled:
            self._done(self)


@dataclass(slots=True)
class TokenLogin:
    """The login of one client by token."""

    session: ClientSession
    trust: TrustedAccounts
    callouts: Callouts
    decided: Decided
    cancelled: bool = False
    check: TokenCheck | None = None
    callout: Callout | None = None

    def cancel(self) -> None:
        """Cancel the login, since its session has ended."""
        self.cancelled = True
        if self.check is not None:
            self.check.cancelled = True
            self.check = None  # break the cycle: the check refers to this login
        if self.callout is not None:
            self.callout.cancel()
            self.callout = None

    def begin(self) -> None:
        """Start the check of the token."""
        session, options = self.session, self.session.options
        given = (options.jwt, self.trust.options.default_sentinel)
        texts = tuple(text for text in given if text)
        check = self.check = TokenCheck(texts, session.nonce, options.sig, self._checked)
        check.owner = (session.peer.ip, session.cid)
        session.turn.jobs.append(check)

    def _checked(self, check: TokenCheck) -> None:
        self.check = None
        if self.cancelled:
            return
        user = check.user
        if user is None:
            self._refuse(check.fault)
            return
        if user.grant.proxy_required and not self.session.peer.proxy:
            self.decided(REQUIRED)
            return
        now_s = self.session.host.clock.wall_ns() // NS_PER_S
        issues = user_issues(user, now_s)
        if are_blocking(issues, times=True):
            self._refuse(f"User JWT no longer valid: {'; '.join(each.description for each in issues)}")
        elif self._may_come_from(user.account):
            self.trust.find(user.account, lambda account: self._found(check, user, account))

    def _may_come_from(self, name: str) -> bool:
        """Return whether users of an account may connect; if not, refuse the login."""
        if self.trust.is_pinned(name):
            return True
        self.trust.pinned_failures += 1
        self._refuse(f"Account {name} not listed as operator pinned account")
        return False

    def _found(self, check: TokenCheck, claims: UserClaims, account: TrustedAccount | None) -> None:
        if self.cancelled:
            return
        if account is None:
            self._refuse("Account JWT lookup error: account missing or expired")
            return
        # a reload during the check may have changed the pinned accounts
        if not self._may_come_from(claims.account):
            return
        user: User | None = None
        try:
            user = admit(self.session, claims, check, account)
        except Refused as refused:
            if refused.fault is not None:
                self.decided(refused.fault)
                return
            self._log(str(refused), is_error=refused.is_error)
        rules = self.callouts.rules_of(account, self.session, user)
        if rules is None:
            self.decided(user)
        else:
            self.callout = self.callouts.ask(self.session, rules, user, self.decided)
            self.callout.begin()

    def _refuse(self, text: str) -> None:
        self._log(text)
        self.decided(None)

    def _log(self, text: str, *, is_error: bool = False) -> None:
        log = self.session.host.log
        (log.error if is_error else log.debug)(f"{self.session} - {text}")


def admit(session: ClientSession, claims: UserClaims, check: TokenCheck, account: TrustedAccount) -> User:
    """Return the user that valid claims describe.

    Raises:
        Refused: the account does not accept this user.
    """
    grant = granted(claims, account)
    check_proxy(grant, session)
    if account.is_expired:
        raise Refused("Account JWT has expired")
    if grant.bearer and account.claims.limits.disallow_bearer:
        raise Refused("Account does not allow bearer tokens")
    check_connection_type(grant, session)
    if check.signature_fault and not grant.bearer:
        raise Refused(check.signature_fault)
    if account.claims.is_revoked(claims.head.subject, claims.head.issued_at):
        raise Refused("User authentication revoked")
    if not may_come_from(grant, session.peer.ip):
        raise Refused(f"Bad src Ip {session.peer.ip}", is_error=True)
    return user_from(session, claims, grant, account, check.text)


def granted(claims: UserClaims, account: TrustedAccount) -> Grant:
    """Return the permissions and limits of a user, from its claims or from the role of the key that signed them.

    Raises:
        Refused: the key may not sign users of the account, or may not sign this user.
    """
    if not account.knows(claims.head.issuer):
        raise Refused("User JWT issuer is not known")
    scope = account.keys[claims.head.issuer]
    if scope is None:
        return claims.grant
    if claims.grant != Grant():
        raise Refused("User JWT is not valid: scoped users require no permissions or limits set")
    subjects = Subjects(claims, account.claims.head.name, account.claims.head.tags)
    try:
        return filled_grant(scope.template, subjects)
    except BadTemplate:
        raise Refused("User JWT generated invalid permissions") from None


def check_proxy(grant: Grant, session: ClientSession) -> None:
    """Raise Refused if the user must come through a trusted proxy but does not."""
    if grant.proxy_required and not session.peer.proxy:
        raise Refused(REQUIRED.text, fault=REQUIRED)


def check_connection_type(grant: Grant, session: ClientSession) -> None:
    """Raise Refused if the user may not use this kind of connection, or if the user's list has no known kind."""
    types = known_types(grant.connection_types)
    if types is None:
        raise Refused(f"invalid connection types {list(grant.connection_types)}")
    if types and TYPE_OF_PEER[session.peer.kind] not in types:
        raise Refused("Connection type not allowed")


def user_from(
    session: ClientSession, claims: UserClaims, grant: Grant, account: TrustedAccount | None, text: str
) -> User:
    """Return the user for a session. If `account` is None, the audience in the claims names the account.

    Raises:
        Refused: the user may not be connected at this time of the day.
    """
    clock, head = session.host.clock, claims.head
    left_s = seconds_allowed(grant, clock.wall_ns() / NS_PER_S)
    if left_s is None:
        raise Refused("Outside connect times", is_error=True)
    ends_s = [left_s] if left_s else []
    if head.expires:
        ends_s.append(max(0, head.expires - clock.wall_ns() // NS_PER_S))
    permissions = permissions_of(grant.permissions)
    by_default = permissions is None and account is not None
    token = UserToken(
        subject=head.subject,
        issued_at=head.issued_at,
        issuer=head.issuer,
        signing_key=head.issuer if claims.issuer_account else "",
        expires_at_ns=clock.now_ns() + int(min(ends_s) * NS_PER_S) if ends_s else 0,
        subs=limit_of(grant.subs),
        payload=limit_of(grant.payload),
        default_permissions=by_default,
        bearer=grant.bearer,
        text=text,
        name=head.name,
        tags=head.tags,
    )
    if by_default and account is not None:
        permissions = account.default_permissions
    name = account.name if account is not None else head.audience
    return User(head.subject, "", name, permissions, token=token)
