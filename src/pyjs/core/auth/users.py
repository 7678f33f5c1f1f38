"""Users: their passwords or tokens, accounts and permissions.

A secret is plain or bcrypt (`$2a$…`), distinguished by its prefix as in nats-server. A bcrypt check takes
longer than a turn, so it is a Job. Verified pairs of secret and password are cached in memory only, as keyed hashes,
until the users are read again.

A refusal takes the same time for every kind and cost of secret, and also if the user does not exist. For this, each
refusal does the work of the most expensive bcrypt secret, if there is one. This module knows nothing of the wire: the
session passes the options of CONNECT as arguments.

Source: nats.docs "Authentication"; tests/conformance/scenarios/auth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.auth.permissions import Permissions
from pyjs.core.auth.proxies import TrustedProxies
from pyjs.core.job import Job, JobQueue
from pyjs.wire.nkeys import is_signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.link import TlsPeer

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
VERIFIED_MAX = 4096  # cached pairs of secret and password
PASSWORD_MAX = 72  # bytes that bcrypt uses; like nats-server, it ignores the rest
BCRYPT_FORMS = ("$2a$", "$2b$", "$2x$", "$2y$")
SALT = "." * 22  # for checks that only consume time


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class UserToken:
    """The claims of a user's token, as far as the server uses them. -1 means no limit."""

    subject: str  # its public key
    issued_at: int  # seconds since the epoch
    issuer: str  # the key that signed the token
    signing_key: str  # the issuer, if that is not the account itself
    expires_at_ns: int  # of the monotonic clock; 0: never
    subs: int
    payload: int
    default_permissions: bool  # the user has the default permissions of its account
    bearer: bool
    text: str  # the token; "": the user came from a service
    name: str
    tags: tuple[str, ...]


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class User:
    """One user. `secret` is the user's password, or the token that all clients of the server share."""

    name: str  # the user name, or the public nkey
    secret: str
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    nkey: bytes = b""  # the public key that verifies the user's signature; b"": the user has a password
    connection_types: frozenset[str] = frozenset()  # kinds of connections that the user may use; empty: all
    token: UserToken | None = None  # None: the user is from the configuration file
    proxy_required: bool = False  # the user must connect through a trusted proxy


ANONYMOUS = User("", "")


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class Claim:
    """A client's claim to be `user`, with its proof `given`."""

    user: User | None  # None: there is no such user
    secret: str = ""  # compared with `given`
    given: str = ""
    free: bool = False  # no proof needed


def is_bcrypt(secret: str) -> bool:
    """Return whether a stored secret is a bcrypt hash."""
    return secret.startswith(BCRYPT_FORMS)


def bcrypt_cost(secret: str) -> int:
    """Return the cost of a stored secret (bcrypt does 2^cost rounds), or 0 if it is not a usable hash."""
    if not is_bcrypt(secret) or not secret[4:6].isdecimal():
        return 0
    return int(secret[4:6]) if 4 <= int(secret[4:6]) <= 31 else 0


class PasswordCheck(Job):
    """A job that verifies a claim with a password in a thread, then calls `decided` with the claim and the result."""

    queue = JobQueue.COMPUTE

    def __init__(self, claim: Claim, cost: int, decided: Callable[[Claim, bool], None]) -> None:
        self.claim = claim
        self.cancelled = False  # the result is no longer needed
        self.matches = False
        self._cost = cost  # a refusal takes as long as a bcrypt check of this cost
        self._decided = decided

    def cancel(self) -> None:
        """Cancel the check, since its result is no longer needed."""
        self.cancelled = True

    def run(self) -> None:
        """Verify the password, unless the check is cancelled.

        A refusal takes at least as long as a bcrypt check of the cost given at creation.
        """
        import bcrypt  # imported lazily: only hashed passwords need it

        if self.cancelled:
            return
        given = self.claim.given.encode(errors="replace")[:PASSWORD_MAX]
        own = bcrypt_cost(self.claim.secret)
        if own:
            try:
                self.matches = bcrypt.checkpw(given, self.claim.secret.encode())
            except ValueError:
                own = 0
        if self.matches:
            return
        # The checks with these costs and the first check together take 2^cost rounds:
        # 2^own + 2^own + 2^(own+1) + ... + 2^(cost-1).
        for cost in range(own, self._cost) if own else (self._cost,):
            bcrypt.hashpw(given.replace(b"\0", b"."), f"$2b${cost:02d}${SALT}".encode())

    def finish(self, failure: Exception | None) -> None:
        """Call `decided` with the claim and the result; after a failure of the job, the result is False."""
        self._decided(self.claim, self.matches and failure is None)


class CertificateUsers:
    """The users of a server that identifies clients by their certificates."""

    def __init__(self, users: list[User]) -> None:
        from pyjs.core.auth.certificates import name_key  # imported lazily: only verify_and_map needs it

        self._name_key = name_key
        self._by_name = {user.name: user for user in users}
        keys = [(name_key(user.name), user) for user in users]
        self._by_key = {key: user for key, user in keys if key is not None}

    def find(self, tls: TlsPeer | None) -> User | None:
        """Return the user for the first matching name in a verified certificate, or None if no name matches."""
        for name in () if tls is None else tls.shown.names:
            user = self._by_name.get(name) or self._by_key.get(self._name_key(name) or ())
            if user is not None:
                return user
        return None


class Authenticator:
    """The users of a server, and the decisions about clients that claim to be one of them."""

    def __init__(
        self,
        users: list[User],
        token: str = "",
        no_auth_user: str = "",
        hash_key: bytes = b"",
        by_certificate: bool = False,
        by_token: bool = False,
        proxies: TrustedProxies | None = None,
        proxy_required: bool = False,
    ) -> None:
        self.users = {user.name: user for user in users if not user.nkey}
        self.nkeys = {user.name: user for user in users if user.nkey}
        self._mapped = CertificateUsers(users) if by_certificate else None
        self.token = token
        self.by_token = by_token  # users come from accounts signed by operators
        self.no_auth_user = self.users.get(no_auth_user) or self.nkeys.get(no_auth_user)
        self.proxies = TrustedProxies() if proxies is None else proxies
        self._proxy_required = proxy_required  # all clients must come through a trusted proxy
        self._cost = max(
            (bcrypt_cost(secret) for secret in (token, *(user.secret for user in users))), default=0
        )
        self._hash_key = hash_key
        self._verified: dict[bytes, None] = {}  # digests of verified claims, oldest first

    @property
    def required(self) -> bool:
        """Whether clients must log in."""
        return bool(self.users or self.nkeys or self.token or self.by_token)

    @property
    def wants_nonce(self) -> bool:
        """Whether clients or proxies may have to sign a nonce from INFO."""
        return bool(self.nkeys or self.by_token or self.proxies)

    def needs_proxy(self, user: User | None) -> bool:
        """Return whether a client that claims to be `user` must come through a trusted proxy."""
        return self._proxy_required or (user is not None and user.proxy_required)

    def claim(
        self, connect: ConnectOptions, tls: TlsPeer | None = None, nonce: str = "", kind: str = "STANDARD"
    ) -> Claim:
        """Return the client's claim of identity, from CONNECT or its certificate; `nonce` is the text to sign.

        `kind` is the kind of the connection, such as "STANDARD". If the user may not use this kind, the claim has no
        user.
        """
        claim = self._claim(connect, tls, nonce)
        types = frozenset() if claim.user is None else claim.user.connection_types
        return replace(claim, user=None) if types and kind not in types else claim

    def _claim(self, connect: ConnectOptions, tls: TlsPeer | None, nonce: str) -> Claim:
        if not self.required:
            return Claim(ANONYMOUS, free=True)
        if self._mapped is not None:
            return Claim(self._mapped.find(tls), free=True)
        if connect.nkey:
            user = self.nkeys.get(connect.nkey)
            # no_auth_user needs no proof.
            holds = user is not None and (
                user is self.no_auth_user or is_signed(nonce, connect.sig, user.nkey)
            )
            return Claim(user if holds else None, free=True)
        if connect.user or connect.jwt:
            user = self.users.get(connect.user)
            return Claim(user, "" if user is None else user.secret, connect.password)
        if connect.auth_token:
            return Claim(ANONYMOUS if self.token else None, self.token, connect.auth_token)
        return Claim(self.no_auth_user, free=True)

    def default_user(self, kind: str) -> User | None:
        """Return the user of a client that does not log in, or None if this `kind` of client must log in."""
        user = self.no_auth_user
        if user is None or user.proxy_required:
            return None
        return None if user.connection_types and kind not in user.connection_types else user

    def decide(self, claim: Claim) -> bool | None:
        """Return whether `claim` is valid, or None if a `check` in a thread must decide."""
        if claim.free:
            return claim.user is not None
        if not is_bcrypt(claim.secret):
            from hmac import compare_digest  # imported lazily, since it takes 2 ms and only secrets need it

            matches = compare_digest(claim.secret.encode(), claim.given.encode(errors="replace"))
            if matches and claim.user is not None:
                return True
            return None if self._cost else False
        return True if self._digest(claim) in self._verified else None

    def check(self, claim: Claim, decided: Callable[[bool], None]) -> PasswordCheck:
        """Return the job that verifies `claim`; it calls `decided` in a later turn."""

        def remember(claim: Claim, matches: bool) -> None:
            if matches:
                self._remember(claim)
            decided(matches and claim.user is not None)

        return PasswordCheck(claim, self._cost, remember)

    def _remember(self, claim: Claim) -> None:
        self._verified[self._digest(claim)] = None
        if len(self._verified) > VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]

    def _digest(self, claim: Claim) -> bytes:
        name = "" if claim.user is None else claim.user.name
        pair = b"".join(
            len(part).to_bytes(8, "little") + part
            for part in (text.encode(errors="replace") for text in (name, claim.secret, claim.given))
        )
        from hashlib import blake2b  # imported lazily, since it takes 2 ms and only bcrypt needs it

        return blake2b(pair, key=self._hash_key, digest_size=32).digest()
