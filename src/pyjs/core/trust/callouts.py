"""The authorization callout: a service in an account decides which user a client is.

In the account of the service, the server publishes a request, which is a token that the server has signed. It waits
for the answer until the authentication timeout. The answer is a token that the service has signed; it contains the
user's token or an error. With an xkey, request and answer are encrypted. No content from a client or from the service
is logged, since it may contain passwords.

Source: nats.docs "Auth Callout"; tests/conformance/test_auth_callout.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.gotext import quoted
from pyjs.base.nuid import nuid
from pyjs.claims.account import ANY
from pyjs.claims.authorization import response_issues, response_of
from pyjs.claims.roles import known_types
from pyjs.claims.token import TokenFault, decode, encode
from pyjs.claims.user import UserClaims, user_issues, user_of
from pyjs.core.auth.identity import user_name
from pyjs.core.auth.permissions import Permissions
from pyjs.core.auth.users import GLOBAL_ACCOUNT, User, UserToken
from pyjs.core.trust.login import Refused, check_proxy, granted, user_from
from pyjs.wire.nkeys import USER, KeyPair
from pyjs.wire.xkeys import SealBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.config.options import CalloutOptions
    from pyjs.core.account import Account
    from pyjs.core.auth.proxies import ProxyFault
    from pyjs.core.host import Host
    from pyjs.core.session import ClientSession
    from pyjs.core.sink import Request
    from pyjs.core.trust.accounts import TrustedAccount, TrustedAccounts
    from pyjs.subjects.sublist import Subscription
    from pyjs.wire.xkeys import CurveKeyPair

    Decided = Callable[["User | ProxyFault | None"], None]

SUBJECT = "$SYS.REQ.USER.AUTH"
AUDIENCE = "nats-authorization-request"
XKEY_HEADER = "Nats-Server-Xkey"
TOKEN_START = b"eyJ"
ANSWER_SIZE_MAX = 1024 * 1024
ASK_WORK = 4096  # in units of `Turn.input_left`: creating keys, a token and its signature takes some 0.25 ms


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for a client: the service that decides about it, and the keys of requests and answers."""

    account: str  # of the service
    issuer: str  # the subject in the claims of requests; without operators, also the key that signs users
    xkey: str
    trusted: TrustedAccount | None  # in operator mode: the account of the service


class Callouts:
    """The authorization callouts of a server: they choose the service for a client, and send requests to it."""

    def __init__(self, host: Host, key: KeyPair, xkey: CurveKeyPair, options: CalloutOptions | None) -> None:
        self.host = host
        self.key = key  # of the server
        self.xkey = xkey
        self.options = options  # from the configuration file; None: each account has its own options
        self.trust: TrustedAccounts | None = None

    # -- choice of the service ----------------------------------------------------------------------------------
    def rules_for(self, session: ClientSession, user: User | None) -> Rules | None:
        """Return the rules for a client about which a service decides, or None if the configuration alone decides.

        `user` is the user found in the configuration, or None.
        """
        options = self.options
        if options is None:
            return None
        account = GLOBAL_ACCOUNT if user is None else user.account
        allowed = options.allowed_accounts
        if account != GLOBAL_ACCOUNT and allowed and account not in allowed:
            return None
        if _name_of(session, user) in options.auth_users:
            return None
        return Rules(options.account, options.issuer, options.xkey, None)

    def rules_of(self, account: TrustedAccount, session: ClientSession, user: User | None) -> Rules | None:
        """Return the rules for a user about which a service of `account` decides, or None if no service decides."""
        external = account.claims.authorization
        if not external.users or _name_of(session, user) in external.users:
            return None
        return Rules(account.name, account.name, external.xkey, account)

    def guarded(self, user: User) -> User:
        """Return `user`, or a copy that may not publish callout requests if its account is that of a service."""
        trusted = None if self.trust is None else self.trust.accounts.get(user.account)
        if trusted is not None:
            is_service = bool(trusted.claims.authorization.users)
        else:
            is_service = self.options is not None and user.account == self.options.account
        if not is_service:
            return user
        permissions = user.permissions or Permissions()
        return replace(user, permissions=permissions.denying(SUBJECT))

    # -- requests ------------------------------------------------------------------------------------------------
    def ask(self, session: ClientSession, rules: Rules, user: User | None, decided: Decided) -> Callout:
        """Return the request about a client; `begin` sends it.

        `user` is the user of the client before the service decides, or None. The request contains this user's token.
        """
        return Callout(self, session, rules, None if user is None else user.token, decided)


class Callout:
    """One request to an authorization service; it ends with the answer, at the timeout, or when the session ends."""

    def __init__(
        self,
        callouts: Callouts,
        session: ClientSession,
        rules: Rules,
        token: UserToken | None,
        decided: Decided,
    ) -> None:
        self._callouts = callouts
        self._session = session
        self._rules = rules
        self._decided = decided
        self.cancelled = False
        self._token = token  # the user's token, if the account accepted it
        self._user = KeyPair(callouts.host.rng.randbytes(32), USER).public  # the answer must name this user
        self._timer: Timer | None = None
        self._subscription: Subscription | None = None
        self._account = callouts.host.accounts.get(rules.account)

    def begin(self) -> None:
        """Send the request, or refuse the login if the account of the service is missing."""
        if self._account is None:
            name = quoted(self._rules.account)
            text = f"No valid account {name} for auth callout request: account missing"
            self._callouts.host.log.warn(text)
            self._finish(None)
        else:
            self._send(self._account)

    def _send(self, account: Account) -> None:
        host, callouts = self._callouts.host, self._callouts
        self._session.turn.input_left -= ASK_WORK
        timeout_ns = host.entrance(self._session.peer).auth_timeout_ns
        now_ns = host.clock.wall_ns()
        claims = self._request() | {"exp": (now_ns + timeout_ns) // NS_PER_S}
        request, headers = encode(claims, callouts.key, now_ns // NS_PER_S).encode(), b""
        if self._rules.xkey:
            request = callouts.xkey.seal(request, self._rules.xkey, host.rng)
            headers = f"NATS/1.0\r\n{XKEY_HEADER}: {callouts.xkey.public}\r\n\r\n".encode()
        inbox = f"_INBOX.{nuid(host.rng)}".encode()
        self._subscription = account.subscribe_handler(inbox, self._answered)
        self._timer = host.timers.at(host.clock.now_ns() + timeout_ns, self._time_out, self._session)
        account.send(SUBJECT.encode(), request, headers, inbox)

    def cancel(self) -> None:
        """End the request, because the session has ended."""
        self.cancelled = True
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None and self._account is not None:
            self._account.unsubscribe(self._subscription)
        self._timer = self._subscription = None

    def _time_out(self) -> None:
        name = self._rules.account
        self._callouts.host.log.debug(
            f"Authorization callout response not received in time on account {quoted(name)}"
        )
        self._finish(None)

    def _finish(self, user: User | ProxyFault | None) -> None:
        self._release()
        if not self.cancelled:
            self._decided(user)

    # -- the request -------------------------------------------------------------------------------------------
    def _request(self) -> dict[str, object]:
        session, rules, host = self._session, self._rules, self._callouts.host
        server = dict(host.server_fields())
        if rules.xkey:
            server["xkey"] = self._callouts.xkey.public
        options, trust, token = session.options, self._callouts.trust, self._token
        sent = {
            "jwt": "" if trust is None else options.jwt or trust.options.default_sentinel,
            "nkey": options.nkey,
            "sig": options.sig,
            "auth_token": options.auth_token,
            "user": options.user,
            "pass": options.password,
            "name": options.name,
            "lang": options.lang,
            "version": options.version,
        }
        client = {
            "host": session.peer.ip,
            "id": session.cid,
            "user": user_name(session) or ("" if token is None else token.subject),
            "name": options.name,
            "tags": [] if token is None else [*token.tags],
            "name_tag": "" if token is None else token.name,
            "kind": "Client",
            "type": session.peer.kind if session.peer.kind != "in_process" else "nats",
            "nonce": session.nonce if options.sig else "",
        }
        nats: dict[str, object] = {
            "server_id": server,
            "user_nkey": self._user,
            "client_info": {name: value for name, value in client.items() if value},
            "connect_opts": {name: value for name, value in sent.items() if value}
            | {"protocol": options.protocol},
            "type": "authorization_request",
            "version": 2,
        }
        tls = session.link.tls
        if tls is not None:
            shown: dict[str, object] = {"version": tls.version, "cipher": tls.cipher_suite}
            if tls.shown.pem:
                shown["verified_chains"] = [list(tls.shown.pem)]
            nats["client_tls"] = shown
        return {"aud": AUDIENCE, "sub": rules.issuer, "nats": nats}

    # -- the answer --------------------------------------------------------------------------------------------
    def _answered(self, request: Request) -> None:
        if self.cancelled or self._timer is None:
            return
        try:
            claims = self._claims_in(request.payload)
            target = self._target(claims)
        except (Refused, TokenFault) as refused:
            self._refuse(str(refused))
            return
        self._release()
        trust = self._callouts.trust
        if self._rules.trusted is not None and trust is not None:
            trust.find(target, lambda account: self._found(claims, target, account))
        else:
            self._found(claims, target, None)

    def _refuse(self, text: str, fault: ProxyFault | None = None) -> None:
        self._callouts.host.log.warn(text[:1].upper() + text[1:])
        self._finish(fault)

    def _found(self, claims: UserClaims, target: str, account: TrustedAccount | None) -> None:
        if self.cancelled:
            return
        try:
            user = self._bound(claims, target, account)
        except Refused as refused:
            self._refuse(str(refused), refused.fault)
        else:
            self._finish(user)

    def _claims_in(self, payload: bytes) -> UserClaims:
        rules = self._rules
        if not payload:
            raise Refused(f'auth callout violation: "no reason supplied" on account {quoted(rules.account)}')
        text = self._verified(payload)
        claims = user_of(decode(text))
        now_s = self._callouts.host.clock.wall_ns() // NS_PER_S
        issues = user_issues(claims, now_s)
        if issues:
            raise Refused(f"Error validating user JWT: {issues[0].description}")
        if claims.head.subject != self._user:
            wrong = f"{quoted(self._user)} but got {quoted(claims.head.subject)}"
            raise Refused(f"Expected authorized user of {wrong} on account {quoted(rules.account)}")
        return claims

    def _verified(self, payload: bytes) -> str:
        """Verify an answer of the service, and return the user's token that it contains.

        Raises:
            Refused, TokenFault: the answer is not acceptable.
        """
        rules, host, encrypted = self._rules, self._callouts.host, False
        if len(payload) > ANSWER_SIZE_MAX:
            raise Refused("auth callout violation: the response is too large")
        if rules.xkey and not payload.startswith(TOKEN_START):
            try:
                payload = self._callouts.xkey.open(payload, rules.xkey)
            except SealBroken as broken:
                name = quoted(rules.account)
                raise Refused(f"error decrypting auth callout response on account {name}: {broken}") from None
            encrypted = True
        response = response_of(decode(payload.decode("utf-8", "replace")))
        issues = response_issues(response, host.clock.wall_ns() // NS_PER_S)
        if issues:
            raise Refused(f"authorization response had validation errors: {issues[0].description}")
        if response.head.subject != self._user:
            raise Refused("auth callout violation: auth callout response is not for expected user")
        if response.head.audience != host.server_fields()["id"]:
            raise Refused("auth callout violation: auth callout response is not for server")
        if response.error:
            raise Refused(f"auth callout service returned an error: {response.error[:256]}")
        if rules.trusted is not None and not encrypted:
            signer = response.issuer_account or response.head.issuer
            if signer != rules.account and not rules.trusted.knows(signer):
                raise Refused("auth callout signing key is unknown")
        return response.jwt

    def _bound(self, claims: UserClaims, target: str, account: TrustedAccount | None) -> User:
        """Return the user that the claims in the service's answer describe.

        Raises:
            Refused: the account is missing, or does not accept this user.
        """
        session, grant = self._session, claims.grant
        if account is not None:
            grant = granted(claims, account)
        elif self._rules.trusted is not None or target not in self._callouts.host.accounts:
            raise Refused(self._no_account(target))
        check_proxy(grant, session)
        # like nats-server, do not compare known types with the session's
        if known_types(grant.connection_types) is None:
            raise Refused(f"authorized user on account {quoted(target)} using invalid connection type")
        user = replace(user_from(session, claims, grant, account, ""), account=target)
        if claims.head.name:
            session.options.user = claims.head.name
            session.options.nkey = session.options.auth_token = ""
        session.options.jwt = ""
        return replace(user, name=claims.head.name or user_name(session) or user.name)

    def _no_account(self, target: str) -> str:
        on = quoted(self._rules.account)
        return f"no valid account {quoted(target)} for auth callout response on account {on}: account missing"

    def _target(self, claims: UserClaims) -> str:
        """Return the account that the claims name.

        Raises:
            Refused: the signer of the claims may not decide about users of that account.
        """
        rules, name = self._rules, quoted(self._rules.account)
        if rules.trusted is None:
            if claims.issuer_account:
                raise Refused(f"error non operator mode account {name}: attempted to use issuer_account")
            if claims.head.issuer != rules.issuer:
                wrong = f"expected {quoted(rules.issuer)} got {quoted(claims.head.issuer)}"
                raise Refused(f"wrong issuer for auth callout response on account {name}, {wrong}")
            return claims.head.audience
        allowed = rules.trusted.claims.authorization.allowed_accounts
        target = claims.account
        if target != rules.account and allowed != (ANY,) and target not in allowed:
            text = f"account {quoted(claims.head.issuer)} not permitted as valid account option"
            raise Refused(f"{text} for auth callout for account {name}")
        return target


def _name_of(session: ClientSession, user: User | None) -> str:
    """Return the name to look up in `auth_users`: that of the verified user or, if there is none, that in CONNECT.

    A client that is identified by a token or a certificate may send any name in CONNECT; that name must not
    let the client bypass the service.
    """
    if user is not None and user.name:
        return user.name
    return session.options.nkey or session.options.user
