"""The accounts of a server in operator mode.

An account is usable as soon as its token has been fetched and verified: an operator key must have signed the token,
and the claims must be valid. A new token of a known account is applied to the connected clients. Fetching and
decoding run in a thread (AccountFetch); several logins that need the same account share one fetch. The number
of fetches is bounded, and a queued fetch is skipped if no login waits for it any more. Otherwise clients with
tokens of unknown accounts could fill the queue of a slow account server.

Source: behaviour of nats-server 2.15.1, tests/conformance/test_jwt_claims.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.claims.account import AccountClaims, account_issues, account_of
from pyjs.claims.fields import Head, are_blocking
from pyjs.claims.token import TokenFault, decode
from pyjs.core.job import Job, JobQueue
from pyjs.core.session import ClientSession
from pyjs.core.trust.convert import account_token, permissions_of
from pyjs.core.trust.exchanges import TokenExchanges
from pyjs.core.trust.gathering import Gathering
from pyjs.core.trust.login import TokenLogin
from pyjs.core.trust.resolvers import DirectoryResolver, MemoryResolver, ResolverFault
from pyjs.wire.nkeys import ACCOUNT, public_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.claims.account import UserScope
    from pyjs.config.options import Options
    from pyjs.core.auth.permissions import Permissions
    from pyjs.core.auth.proxies import ProxyFault
    from pyjs.core.auth.users import User
    from pyjs.core.host import Host
    from pyjs.core.trust.convert import AccountToken
    from pyjs.core.trust.directory import TokenDirectory
    from pyjs.core.trust.resolvers import Resolver

    Known = Callable[["TrustedAccount | None"], None]

VALIDATION = "account validation failed"
FETCHES_MAX = 1024  # accounts being fetched at the same time
FETCH_NS = 2 * NS_PER_S  # time limit of a fetch, unless the options set one
FETCH_AGAIN_NS = NS_PER_S  # an expired account is fetched again after this time
EXPIRED = "Authentication Expired", "Account Authentication Expired"  # close reason, -ERR
REVOKED = "Credentials Revoked", "User Authentication Revoked"
REFUSED = "Authentication Failure", "Authorization Violation"
FULL = "Maximum Account Connections Exceeded", "maximum account active connections exceeded"
TOO_MANY_SUBSCRIPTIONS = "Maximum Subscriptions Exceeded", "maximum subscriptions exceeded"


@dataclass(slots=True)
class TrustedAccount:
    """One account, with its current claims."""

    name: str
    claims: AccountClaims
    text: str  # the token; "": the system account before its token was fetched
    keys: dict[str, UserScope | None]  # keys that may sign its users, each with its role
    default_permissions: Permissions | None = None
    is_expired: bool = False
    updated_ns: int = 0
    timer: Timer | None = None  # fires when the account expires
    exporters: tuple[str, ...] = ()  # the accounts from which this account imports
    gathering: Gathering | None = None  # the running fetch of the exporters
    is_gathered: bool = True
    waiting: list[Known] = field(default_factory=list)  # callbacks for the end of `gathering`

    @property
    def label(self) -> str:
        """The public key of the account, and its display name."""
        return f"{self.name}/{self.claims.head.name}" if self.claims.head.name else self.name

    def knows(self, issuer: str) -> bool:
        """Return whether `issuer` may sign users of the account."""
        return issuer in self.keys


class AccountFetch(Job):
    """A job that fetches and decodes the token of an account."""

    def __init__(self, trust: TrustedAccounts, name: str) -> None:
        self.resolver = trust.resolver
        self.queue = self.resolver.queue
        self._trust = trust
        self._name = name
        self._now_s = trust.now_s
        self._token: AccountToken | None = None
        self.wanted = True  # False: no login waits, so a `run` that has not begun does nothing

    def run(self) -> None:
        """Fetch and decode the token; raise ResolverFault if no login is waiting for it any more."""
        if not self.wanted:
            raise ResolverFault("nobody waits for it any more")
        self._token = account_token(self.resolver.fetch(self._name), self._now_s)

    def finish(self, failure: Exception | None) -> None:
        """Apply the claims, and answer all waiting logins."""
        self._trust.fetched(self, self._name, self._token, failure)


class DirectoryLook(Job):
    """A job that finds which files of the token directory were changed by another program."""

    queue = JobQueue.ACCOUNTS

    def __init__(self, trust: TrustedAccounts, directory: TokenDirectory) -> None:
        self._trust = trust
        self._directory = directory
        self._names: list[str] = []

    def run(self) -> None:
        """Find the files that have changed."""
        self._names = self._directory.changed()

    def finish(self, failure: Exception | None) -> None:
        """Fetch the changed tokens of known accounts."""
        self._trust.refresh(self._names)


class TrustedAccounts:
    """The accounts whose tokens are known."""

    def __init__(self, host: Host, options: Options, resolver: Resolver) -> None:
        self._host = host
        self.options = options
        self.resolver = resolver
        self.accounts: dict[str, TrustedAccount] = {}
        self.pinned_failures = 0  # number of logins refused because their account is not pinned
        # For each account that is being fetched: the callbacks, and the timer that limits the fetch.
        self._waiting: dict[str, tuple[list[Known], Timer]] = {}
        # for logins, until `finish`; also those for which no login waits any more
        self._fetches: dict[str, AccountFetch] = {}
        self._exchanges = TokenExchanges(host)

    def log_in(
        self, session: ClientSession, decided: Callable[[User | ProxyFault | None], None]
    ) -> TokenLogin:
        """Return the login of a client; `begin` starts it, and `decided` is called with its result."""
        assert self._host.callouts is not None
        return TokenLogin(session, self, self._host.callouts, decided)

    # -- lookup ------------------------------------------------------------------------------------------------
    @property
    def now_s(self) -> int:
        """The wall time in seconds."""
        return self._host.clock.wall_ns() // NS_PER_S

    def is_pinned(self, name: str) -> bool:
        """Return whether the list of pinned accounts permits users of this account to connect."""
        pinned = self.options.resolver_pinned_accounts
        return not pinned or name in pinned or name == self.options.system_account

    def find(self, name: str, then: Known) -> None:
        """Fetch the account as `fetch` does, then the accounts from which it imports; then call `then`.

        `then` gets the account, or None if the account is not available.
        """
        self.fetch(name, lambda account: self._gather_for(account, then))

    def _gather_for(self, account: TrustedAccount | None, then: Known) -> None:
        if account is None or account.is_gathered:
            then(account)
            return
        account.waiting.append(then)
        if account.gathering is None:
            self._gather(account)

    def _gather(self, account: TrustedAccount) -> None:
        gathering = Gathering(self, account, lambda: self._gathered(account, gathering))
        account.gathering = gathering
        gathering.begin()

    def _gathered(self, account: TrustedAccount, gathering: Gathering) -> None:
        if account.gathering is not gathering:
            return  # a newer token was applied
        account.gathering, account.is_gathered = None, True
        for name in account.exporters:
            if name not in self.accounts:
                self._host.log.error(f"Can't locate account [{name}] for imports of {account.label}")
        waiting, account.waiting = account.waiting, []
        for then in waiting:
            then(None if account.is_expired else account)

    def fetch(self, name: str, then: Known) -> None:
        """Call `then`, now or in a later turn, with the account, or with None if it is not available."""
        account = self.accounts.get(name)
        if account is not None and not account.is_expired:
            then(account)
            return
        now_ns = self._host.clock.now_ns()
        if account is not None and now_ns - account.updated_ns < FETCH_AGAIN_NS:
            then(None)
            return
        if public_key(name, ACCOUNT) is None:
            self._host.log.warn("Account fetch failed: will only fetch valid account keys")
            then(None)
            return
        if name in self._waiting:
            self._waiting[name][0].append(then)
        elif name not in self._fetches and len(self._fetches) >= FETCHES_MAX:
            self._host.log.warn("Account fetch failed: too many accounts are being fetched")
            then(None)
        else:
            given = self.options.resolver
            due_ns = now_ns + (FETCH_NS if given is None else given.timeout_ns)
            self._waiting[name] = [then], self._host.timers.at(due_ns, lambda: self._give_up(name))
            self._begin_fetch(name)

    def _begin_fetch(self, name: str) -> None:
        """Queue a fetch of the account, unless the fetch for an earlier login is still queued or running."""
        if name in self._fetches:
            self._fetches[name].wanted = True
        else:
            self._fetches[name] = AccountFetch(self, name)
            self._host.turn_state.jobs.append(self._fetches[name])

    def _give_up(self, name: str) -> None:
        """Refuse the logins that wait for a slow fetch; later logins may still use its result."""
        self._host.log.warn("Account fetch failed: fetching jwt timed out")
        self._fetches[name].wanted = False
        for then in self._waiting.pop(name)[0]:
            then(None)

    def refresh(self, names: list[str]) -> None:
        """Fetch new tokens of the loaded accounts in `names`."""
        for name in names:
            if name in self.accounts:
                self._host.turn_state.jobs.append(AccountFetch(self, name))

    def _look(self) -> None:
        resolver = self.resolver
        if isinstance(resolver, DirectoryResolver) and resolver.options.kind == "full":
            self._host.turn_state.jobs.append(DirectoryLook(self, resolver.directory))
            due_ns = self._host.clock.now_ns() + max(resolver.options.interval_ns, NS_PER_S)
            self._host.timers.at(due_ns, self._look)

    def fetched(
        self, fetch: AccountFetch, name: str, token: AccountToken | None, failure: Exception | None
    ) -> None:
        """Apply the token that `fetch` has found, and answer the logins that wait for the account.

        If the fetch failed, `token` is None, and `failure` is the reason.
        """
        found: TrustedAccount | None = None
        if self._fetches.get(name) is fetch:
            del self._fetches[name]
        if token is None and name not in self._waiting and not fetch.wanted:
            return
        if fetch.resolver is not self.resolver:  # a reload during the fetch may have removed the account
            if name in self._waiting:
                self._begin_fetch(name)
            return
        if token is None:
            reason = failure if isinstance(failure, ResolverFault | TokenFault) else f"{failure!r}"
            self._host.log.warn(f"Account fetch failed: {reason}")
        else:
            try:
                found = self.apply(name, token)
            except TokenFault as fault:
                self._host.log.debug(f"Account JWT lookup error: {fault}")
        if found is not None and found.is_expired:
            found = None
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting[1].cancel()
            for then in waiting[0]:
                then(found)

    def load(self, name: str) -> TrustedAccount | None:
        """Fetch, apply and return an account; return None if it cannot be fetched or its token is invalid.

        The call may block, so it is only for the start of the server and for reloads.
        """
        try:
            text, before = self.resolver.fetch(name), self.accounts.get(name)
            if before is not None and before.text == text:
                return before
            account = self.apply(name, account_token(text, self.now_s))
            if not account.is_gathered and account.gathering is None:
                self._gather(account)
            return account
        except (ResolverFault, TokenFault) as fault:
            self._host.log.debug(f"Account [{name}] is not there yet: {fault}")
            return None

    def start(self) -> None:
        """Load the system account. If the resolver does not have it yet, accept users signed with the account's key.

        Raises:
            TokenFault: the account is missing, and the resolver is the configuration itself (MEMORY).
        """
        self._log_preload_issues()
        self._look()
        name = self.options.system_account
        if public_key(name, ACCOUNT) is None or self.load(name) is not None:
            return
        if not self.resolver.bootstraps:
            raise TokenFault("error resolving system account: account missing")
        self._host.log.info("Using bootstrapping system account")
        self.accounts[name] = TrustedAccount(name, AccountClaims(_head_of(name)), "", {name: None})

    def _log_preload_issues(self) -> None:
        for name, text in self.options.resolver_preload.items():
            issues = account_issues(account_of(decode(text)), self.now_s)
            if are_blocking(issues, times=True):
                self._host.log.warn(f"Account [{name}] has validation issues:")
                for issue in issues:
                    self._host.log.warn(f"  - {issue.description}")

    # -- changes -----------------------------------------------------------------------------------------------
    def apply_options(self, options: Options) -> None:
        """Apply reloaded options: apply the file's new tokens, and close clients of accounts that may not connect."""
        self.options = options
        if isinstance(self.resolver, MemoryResolver):
            self.resolver = MemoryResolver(options.resolver_preload)
            for name in list(self.accounts):
                if name in options.resolver_preload or name == options.system_account:
                    self.load(name)
                elif not self.accounts[name].is_expired:
                    self.disable(name, REFUSED)
        for name in self.accounts:
            if not self.is_pinned(name):
                self._close_all(name, REFUSED)

    def apply(self, name: str, token: AccountToken) -> TrustedAccount:
        """Verify a token, and apply its claims to the account, its clients and the accounts that import from it.

        Return the account.

        Raises:
            TokenFault: no operator signed the token, or its claims are invalid.
        """
        before, claims = self.accounts.get(name), token.claims
        if before is not None and before.text == token.text:
            return before
        if claims.head.issuer not in self.options.operator_keys or claims.head.subject != name:
            raise TokenFault(VALIDATION)
        if not token.is_valid:
            raise TokenFault(VALIDATION)
        self._host.log.debug(f"Updating account claims: {name}/{claims.head.name}")
        account = before or TrustedAccount(name, claims, token.text, {})
        old_keys, old_permissions = account.keys, account.default_permissions
        account.claims, account.text = claims, token.text
        account.keys = self._keys_of(claims)
        account.updated_ns = self._host.clock.now_ns()
        account.default_permissions = permissions_of(claims.default_permissions)
        self.accounts[name] = account
        self._set_expiry(account)
        self._host.apply_account(token.options, claims.head.name)
        self._exchanges.change(name, replace(token.options.exchange(), signers=frozenset(account.keys)))
        account.exporters = tuple(dict.fromkeys(each.account for each in claims.imports))
        account.is_gathered = not account.exporters
        if before is not None and account.exporters:
            self._gather(account)
        self._apply_to_sessions(account, old_keys, old_permissions)
        return account

    def _keys_of(self, claims: AccountClaims) -> dict[str, UserScope | None]:
        """Return the keys that may sign users: the signing keys and, if the operator permits it, the account key."""
        keys = dict(claims.signing_keys)
        issuer = claims.head.issuer
        strict = any(
            each.claims.strict_signing_key_usage and issuer in each.claims.signing_keys
            for each in self.options.operators
        )
        return keys if strict else keys | {claims.head.subject: None}

    def _set_expiry(self, account: TrustedAccount) -> None:
        if account.timer is not None:
            account.timer.cancel()
            account.timer = None
        expires, now_s = account.claims.head.expires, self.now_s
        account.is_expired = 0 < expires <= now_s
        if expires > now_s:
            due_ns = self._host.clock.now_ns() + (expires - now_s) * NS_PER_S
            account.timer = self._host.timers.at(due_ns, lambda: self._expire(account))

    def _expire(self, account: TrustedAccount) -> None:
        account.timer = None
        account.is_expired = True
        self._close_all(account.name, EXPIRED)

    def _close_all(self, name: str, why: tuple[str, str]) -> None:
        for session in self._sessions_of(name):
            session.close(*why)

    def disable(self, name: str, why: tuple[str, str] = EXPIRED) -> None:
        """Close the clients of an account whose token expired or was removed, and refuse new clients.

        `why` is the close reason and the -ERR text for the clients.
        """
        account = self.accounts.get(name)
        if account is None:
            return
        self._host.log.debug(f"Disable account {name} due to remove")
        if account.timer is not None:
            account.timer.cancel()
        account.timer = None
        account.is_expired = True
        account.updated_ns = self._host.clock.now_ns()
        account.text = ""
        self._close_all(name, why)
        self._host.disable_account(name)

    def _sessions_of(self, name: str) -> list[ClientSession]:
        """Return the clients of an account, oldest first."""
        account = self._host.accounts.get(name)
        if account is None or not account.sessions:
            return []
        clients = [session for session in account.sessions if isinstance(session, ClientSession)]
        return sorted(clients, key=attrgetter("cid"))

    def _apply_to_sessions(
        self,
        account: TrustedAccount,
        old_keys: dict[str, UserScope | None],
        old_permissions: Permissions | None,
    ) -> None:
        limit, count = account.claims.limits.connections, 0
        changed = {key for key, scope in old_keys.items() if account.keys.get(key, ()) != scope}
        for session in self._sessions_of(account.name):
            if limit >= 0 and count >= limit:
                self._host.log.error(f"{session} - {FULL[1]}")
                session.close(*FULL)
                continue
            count += 1
            self._apply_to(session, account, old_permissions)
            token = None if session.user is None else session.user.token
            if not session.closed_reason and token is not None and token.signing_key in changed:
                session.close(REFUSED[0])

    def _apply_to(
        self, session: ClientSession, account: TrustedAccount, old_permissions: Permissions | None
    ) -> None:
        user = session.user
        session.apply_settings()
        if session.num_subscriptions >= session.subscriptions_max:
            session.close(*TOO_MANY_SUBSCRIPTIONS)
            return
        token = None if user is None else user.token
        if user is None or token is None:
            return
        if token.bearer and account.claims.limits.disallow_bearer:
            session.close(*REFUSED)
        elif account.claims.is_revoked(token.subject, token.issued_at):
            session.close(*REVOKED)
        elif token.default_permissions and not _same(old_permissions, account.default_permissions):
            session.change_permissions(account.default_permissions)


def _same(one: Permissions | None, other: Permissions | None) -> bool:
    return one is other if one is None or other is None else one.same_as(other)


def _head_of(name: str) -> Head:
    return Head(subject=name)
