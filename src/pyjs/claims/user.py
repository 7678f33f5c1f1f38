"""Claims of a user: permissions and limits, from the token itself or from the role of the key that signed it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyjs.claims.fields import Head, Issue, block, blocks, flag, head_of, number, text, texts, time_issues
from pyjs.claims.subjects import permission_issues
from pyjs.claims.token import TokenFault
from pyjs.wire.nkeys import ACCOUNT, public_key

if TYPE_CHECKING:
    from pyjs.claims.fields import Map
    from pyjs.claims.token import Token

NO_LIMIT = -1
CLOCK = re.compile(r"(\d\d?):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class PermissionLists:
    """The subjects that a user may publish and subscribe to; an empty allow list allows every subject."""

    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()
    # (maximum number of answers to a message, time in ns to send them)
    responses: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all lists are empty and `responses` is not set."""
        lists = (self.publish_allow, self.publish_deny, self.subscribe_allow, self.subscribe_deny)
        return not any(lists) and self.responses is None


def read_permissions(fields: Map) -> PermissionLists:
    """Return the permissions in `fields`."""
    publish, subscribe = block(fields, "pub"), block(fields, "sub")
    responses = None
    if fields.get("resp") is not None:
        given = block(fields, "resp")
        responses = number(given, "max"), number(given, "ttl")
    return PermissionLists(
        texts(publish, "allow"),
        texts(publish, "deny"),
        texts(subscribe, "allow"),
        texts(subscribe, "deny"),
        responses,
    )


def permissions_issues(lists: PermissionLists) -> list[Issue]:
    """Return the issues in the lists of permissions."""
    issues: list[Issue] = []
    for entry in (*lists.subscribe_allow, *lists.subscribe_deny):
        issues += permission_issues(entry, with_queue=True)
    for entry in (*lists.publish_allow, *lists.publish_deny):
        issues += permission_issues(entry, with_queue=False)
    return issues


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions and limits of a user, from its own claims or from the template of a role."""

    permissions: PermissionLists = PermissionLists()
    sources: tuple[str, ...] = ()  # allowed networks; (): any
    times: tuple[tuple[str, str], ...] = ()  # daily ranges in which the user may be connected; (): always
    zone: str = ""  # time zone of `times`; "": that of the machine
    subs: int = 0  # NO_LIMIT: no limit
    data: int = 0
    payload: int = 0
    bearer: bool = False  # the user need not sign the nonce
    proxy_required: bool = False
    connection_types: tuple[str, ...] = ()


def read_grant(fields: Map, default_limit: int = 0) -> Grant:
    """Return the grant in `fields`; a missing limit is `default_limit`."""
    times = tuple((text(each, "start"), text(each, "end")) for each in blocks(fields, "times"))
    return Grant(
        read_permissions(fields),
        _read_sources(fields),
        times,
        text(fields, "times_location"),
        number(fields, "subs", default_limit),
        number(fields, "data", default_limit),
        number(fields, "payload", default_limit),
        flag(fields, "bearer_token"),
        flag(fields, "proxy_required"),
        texts(fields, "allowed_connection_types"),
    )


def _read_sources(fields: Map) -> tuple[str, ...]:
    """Return the allowed networks, which are given as a list or as a string with commas."""
    given = fields.get("src")
    if not isinstance(given, str):
        return texts(fields, "src")
    words = (word.strip().lower() for word in given.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def grant_issues(grant: Grant) -> list[Issue]:
    """Return the issues in a grant."""
    issues = permissions_issues(grant.permissions)
    for source in grant.sources:
        if network_of(source) is None:
            issues.append(Issue(f'invalid cidr "{source}" in user src limits'))
    for start, end in grant.times:
        issues += _time_issues("start", "a start", start) + _time_issues("end", "an end", end)
    if grant.zone:
        try:
            ZoneInfo(grant.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            issues.append(Issue(f"could not parse iana time zone by name: unknown time zone {grant.zone}"))
    return issues


def network_of(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network that `text` names in CIDR notation, or None if `text` is invalid."""
    if "/" not in text or not text.rpartition("/")[2].isdecimal():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def second_of_day(text: str) -> int | None:
    """Return the second of the day for a time such as `15:04:05`, or None if `text` is not such a time."""
    found = CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(part) for part in found.groups())
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 and second < 60 else None


def _time_issues(name: str, article: str, given: str) -> list[Issue]:
    if not given:
        return [Issue(f"time ranges {name} must contain {article}")]
    if second_of_day(given) is None:
        return [Issue(f'{name} in time range is invalid "{given}"')]
    return []


@dataclass(frozen=True, slots=True)
class UserClaims:
    """The claims of a user."""

    head: Head
    grant: Grant
    issuer_account: str = ""  # if set, the issuer is a signing key of this account

    @property
    def account(self) -> str:
        """The account of the user."""
        return self.issuer_account or self.head.issuer


def user_of(token: Token) -> UserClaims:
    """Return the claims in the token of a user.

    Raises:
        TokenFault: the token is of another kind, or a claim has the wrong type.
    """
    if token.kind != "user":
        raise TokenFault("not user claim")
    grant = read_grant(token.nats, NO_LIMIT if token.version == 1 else 0)
    return UserClaims(head_of(token), grant, text(token.nats, "issuer_account"))


def user_issues(user: UserClaims, now_s: int) -> list[Issue]:
    """Return the issues in the claims of a user."""
    issues = time_issues(user.head, now_s) + grant_issues(user.grant)
    if user.issuer_account and public_key(user.issuer_account, ACCOUNT) is None:
        issues.append(Issue("account_id is not an account public key"))
    return issues
