"""Claims of an account: limits, signing keys, revocations, exports and imports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.claims.exchange import (
    WHOLE,
    Export,
    Import,
    MappedTo,
    export_issues,
    import_issues,
    mapping_issues,
    read_exports,
    read_imports,
    read_mappings,
)
from pyjs.claims.fields import (
    Head,
    Issue,
    block,
    flag,
    head_of,
    number,
    numbers,
    text,
    texts,
    time_issues,
)
from pyjs.claims.subjects import has_wildcards, subject_issues
from pyjs.claims.token import TokenFault
from pyjs.claims.user import (
    NO_LIMIT,
    Grant,
    PermissionLists,
    permissions_issues,
    read_grant,
    read_permissions,
)
from pyjs.wire.nkeys import ACCOUNT, CURVE, USER, public_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.claims.fields import Map
    from pyjs.claims.token import Token

ANY = "*"  # in revocations: every user; in `allowed_accounts`: every account
INFO_SIZE_MAX = 8 * 1024


@dataclass(frozen=True, slots=True)
class JetStreamClaims:
    """JetStream limits of an account or tier; NO_LIMIT means no limit.

    JetStream is off if memory and disk are both 0.
    """

    memory: int = 0
    disk: int = 0
    streams: int = 0
    consumers: int = 0
    max_ack_pending: int = 0
    memory_max_stream: int = 0
    disk_max_stream: int = 0
    max_bytes_required: bool = False

    @property
    def is_enabled(self) -> bool:
        """Whether JetStream is enabled."""
        return bool(self.memory or self.disk)


@dataclass(frozen=True, slots=True)
class AccountLimitClaims:
    """Limits of an account; NO_LIMIT means no limit."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False  # exports may have wildcards
    disallow_bearer: bool = False
    connections: int = 0
    leafnodes: int = 0
    jetstream: JetStreamClaims = JetStreamClaims()
    tiers: tuple[tuple[str, JetStreamClaims], ...] = ()  # JetStream limits by tier, in place of `jetstream`

    @property
    def has_jetstream(self) -> bool:
        """Whether JetStream is enabled."""
        if self.tiers:
            return any(tier.is_enabled for _, tier in self.tiers)
        return self.jetstream.is_enabled


@dataclass(frozen=True, slots=True)
class ExternalAuthorization:
    """The authorization callout of an account; the service does not check the users in `users`."""

    users: tuple[str, ...] = ()
    allowed_accounts: tuple[str, ...] = ()
    xkey: str = ""


@dataclass(frozen=True, slots=True)
class UserScope:
    """A role: the permissions of all users signed by one signing key."""

    key: str
    role: str
    template: Grant
    description: str = ""


@dataclass(frozen=True, slots=True)
class TraceClaims:
    """The destination of traces of messages with a W3C `traceparent`."""

    subject: str
    sampling: int = WHOLE  # percent of these messages


@dataclass(frozen=True, slots=True)
class AccountClaims:
    """The claims of an account."""

    head: Head
    limits: AccountLimitClaims = AccountLimitClaims()
    signing_keys: Mapping[str, UserScope | None] = field(default_factory=dict)
    # By user or ANY: a time in seconds; claims issued up to this time are revoked.
    revocations: Mapping[str, int] = field(default_factory=dict)
    default_permissions: PermissionLists = field(default_factory=PermissionLists)
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: Mapping[str, tuple[MappedTo, ...]] = field(default_factory=dict)
    authorization: ExternalAuthorization = ExternalAuthorization()
    trace: TraceClaims | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""

    def is_revoked(self, user: str, issued_at: int) -> bool:
        """Return whether claims of `user` that were issued at `issued_at` are revoked.

        `issued_at` is in seconds since the epoch.
        """
        return any(issued_at <= self.revocations.get(key, issued_at - 1) for key in (ANY, user))


def account_of(token: Token) -> AccountClaims:
    """Return the claims in the token of an account.

    Raises:
        TokenFault: the token is of another kind, or a claim has the wrong type.
    """
    if token.kind != "account":
        raise TokenFault("not account claim")
    nats = token.nats
    return AccountClaims(
        head_of(token),
        _read_limits(block(nats, "limits"), token.version),
        _read_signing_keys(nats),
        numbers(nats, "revocations"),
        read_permissions(block(nats, "default_permissions")),
        read_exports(nats),
        read_imports(nats),
        read_mappings(nats),
        _read_authorization(block(nats, "authorization")),
        _read_trace(nats),
        text(nats, "cluster_traffic"),
        text(nats, "description"),
        text(nats, "info_url"),
    )


def _read_limits(fields: Map, version: int) -> AccountLimitClaims:
    tiers = block(fields, "tiered_limits") if version > 1 else {}
    return AccountLimitClaims(
        number(fields, "subs"),
        number(fields, "data"),
        number(fields, "payload"),
        number(fields, "imports"),
        number(fields, "exports"),
        flag(fields, "wildcards"),
        flag(fields, "disallow_bearer"),
        number(fields, "conn"),
        number(fields, "leaf"),
        JetStreamClaims() if tiers or version == 1 else _read_jetstream(fields),
        tuple((name, _read_jetstream(block(tiers, name))) for name in tiers),
    )


def _read_jetstream(fields: Map) -> JetStreamClaims:
    return JetStreamClaims(
        number(fields, "mem_storage"),
        number(fields, "disk_storage"),
        number(fields, "streams"),
        number(fields, "consumer"),
        number(fields, "max_ack_pending"),
        number(fields, "mem_max_stream_bytes"),
        number(fields, "disk_max_stream_bytes"),
        flag(fields, "max_bytes_required"),
    )


def _read_signing_keys(fields: Map) -> dict[str, UserScope | None]:
    keys: dict[str, UserScope | None] = {}
    given = fields.get("signing_keys") or []
    if not isinstance(given, list):
        raise TokenFault("json: cannot unmarshal the field signing_keys, which is not an array")
    for each in given:
        if isinstance(each, str):
            keys[each] = None
        elif isinstance(each, dict):
            if each.get("kind") != "user_scope":
                raise TokenFault(f'unknown signing key scope "{each.get("type")}"')
            scope = UserScope(
                text(each, "key"),
                text(each, "role"),
                read_grant(block(each, "template"), NO_LIMIT),
                text(each, "description"),
            )
            keys[scope.key] = scope
    return keys


def _read_trace(fields: Map) -> TraceClaims | None:
    if fields.get("trace") is None:
        return None
    trace = block(fields, "trace")
    return TraceClaims(text(trace, "dest"), number(trace, "sampling") or WHOLE)


def _trace_issues(trace: TraceClaims) -> list[Issue]:
    issues = [
        Issue(f"the account Trace.Destination {each.description}")
        for each in subject_issues(trace.subject)[:1]
    ]
    if has_wildcards(trace.subject):
        wrong = f'subject "{trace.subject}" is not a valid publish subject'
        issues.append(Issue(f"the account Trace.Destination {wrong}"))
    if not 0 <= trace.sampling <= WHOLE:
        wrong = f"value '{trace.sampling}' is not valid, should be in the range [1..100]"
        issues.append(Issue(f"the account Trace.Sampling {wrong}"))
    return issues


def _read_authorization(fields: Map) -> ExternalAuthorization:
    return ExternalAuthorization(
        texts(fields, "auth_users"), texts(fields, "allowed_accounts"), text(fields, "xkey")
    )


def account_issues(account: AccountClaims, now_s: int) -> list[Issue]:
    """Return the issues in the claims of an account."""
    issues = time_issues(account.head, now_s)
    issues += import_issues(account.imports, account.head.subject)
    issues += export_issues(account.exports)
    if "" in dict(account.limits.tiers):
        issues.append(Issue('Tiered JetStream Limits can not contain a blank "" tier name'))
    issues += permissions_issues(account.default_permissions)
    issues += mapping_issues(account.mappings)
    issues += _authorization_issues(account.authorization)
    issues += [] if account.trace is None else _trace_issues(account.trace)
    issues += _count_issues(account)
    for key, scope in account.signing_keys.items():
        if public_key(key, ACCOUNT) is None:
            wrong = f'"{key}" is not a valid account signing key'
            issues.append(Issue(wrong if scope is None else f"{key} is not an account public key"))
    if max(len(account.description), len(account.info_url)) > INFO_SIZE_MAX:
        issues.append(Issue("Description is too long"))
    if account.cluster_traffic not in ("", "system", "owner"):
        issues.append(Issue(f'unknown cluster traffic option: "{account.cluster_traffic}"'))
    if public_key(account.head.issuer, ACCOUNT) is not None and account.limits != AccountLimitClaims():
        issues.append(Issue("self-signed account JWTs shouldn't contain operator limits", False))
    return issues


def _authorization_issues(given: ExternalAuthorization) -> list[Issue]:
    issues = []
    if given.allowed_accounts and not given.users:
        issues.append(Issue("External authorization cannot have accounts without users specified"))
    for user in given.users:
        if public_key(user, USER) is None:
            issues.append(Issue(f'AuthUser "{user}" is not a valid user public key'))
    for account in given.allowed_accounts:
        if account == ANY and len(given.allowed_accounts) > 1:
            issues.append(Issue('AllowedAccounts can only be a list of accounts or "*"'))
        elif account != ANY and public_key(account, ACCOUNT) is None:
            issues.append(Issue(f'Account "{account}" is not a valid account public key'))
    if given.xkey and public_key(given.xkey, CURVE) is None:
        issues.append(Issue(f'XKey "{given.xkey}" is not a valid public xkey'))
    return issues


def _count_issues(account: AccountClaims) -> list[Issue]:
    limits, issues = account.limits, []
    too_many = Issue("the account contains more imports than allowed by the operator")
    if limits != AccountLimitClaims() and 0 <= limits.imports < len(account.imports):
        issues.append(too_many)
    if limits.imports != NO_LIMIT and len(account.imports) > limits.imports:
        issues.append(too_many)
    if limits.exports != NO_LIMIT:
        if len(account.exports) > limits.exports:
            issues.append(Issue("the account contains more exports than allowed by the operator"))
        if not limits.wildcards:
            issues += [
                Issue("the account contains wildcard exports that are not allowed by the operator")
                for export in account.exports
                if has_wildcards(export.subject)
            ]
    return issues
