"""The permissions of a user, made from the template of a role, and the times and addresses allowed to a user.

Source: behaviour of nats-server 2.15 (tests/conformance/test_jwt_login.py).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from itertools import product
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyjs.claims.subjects import is_valid_subject
from pyjs.claims.user import network_of, second_of_day

if TYPE_CHECKING:
    from pyjs.claims.user import Grant, UserClaims

TEMPLATE = re.compile(r"\{\{[^}]+\}\}")
EXPANSIONS_MAX = 4096  # maximum number of subjects in one list
CONNECTION_TYPES = (
    "STANDARD",
    "WEBSOCKET",
    "LEAFNODE",
    "LEAFNODE_WS",
    "MQTT",
    "MQTT_WS",
    "IN_PROCESS",
)
TYPE_OF_PEER = {"nats": "STANDARD", "websocket": "WEBSOCKET", "in_process": "IN_PROCESS"}


class BadTemplate(ValueError):
    """Raised when a template cannot be filled in for a user."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The values to which a template may refer: those of one user and of the user's account."""

    user: UserClaims
    account_name: str
    account_tags: tuple[str, ...]

    def values(self, operation: str) -> tuple[list[str], str | None]:
        """Return the values of an operation such as `name()`, and the name of the tag to which it refers, or None.

        Raises:
            BadTemplate: there is no such operation.
        """
        user = self.user
        single = {
            "name()": user.head.name,
            "subject()": user.head.subject,
            "account-name()": self.account_name,
            "account-subject()": user.issuer_account,
        }
        if operation.lower() in single:
            return [single[operation.lower()]], None
        for prefix, tags in (("tag(", user.head.tags), ("account-tag(", self.account_tags)):
            if operation[: len(prefix)].lower() == prefix and operation.endswith(")"):
                name = operation.removeprefix(prefix).removesuffix(")")
                start = f"{name.lower()}:"
                return [tag.removeprefix(start) for tag in tags if tag.startswith(start)], name
        raise BadTemplate(f'template operation "{operation}" is not defined')


def filled_grant(template: Grant, subjects: Subjects) -> Grant:
    """Return the grant that a user gets from `template`.

    Raises:
        BadTemplate: an operation is unknown, a deny list cannot be filled in, or there are too many subjects.
    """
    lists = template.permissions
    subscribe_allow = _filled(lists.subscribe_allow, subjects, strict=False)
    subscribe_deny = _filled(lists.subscribe_deny, subjects, strict=True)
    publish_allow = _filled(lists.publish_allow, subjects, strict=False)
    publish_deny = _filled(lists.publish_deny, subjects, strict=True)
    # An allow list from which all entries were dropped must not allow everything.
    if lists.subscribe_allow and not subscribe_allow and ">" not in subscribe_deny:
        subscribe_deny += (">",)
    if lists.publish_allow and not publish_allow and ">" not in publish_deny:
        publish_deny += (">",)
    permissions = replace(
        lists,
        publish_allow=publish_allow,
        publish_deny=publish_deny,
        subscribe_allow=subscribe_allow,
        subscribe_deny=subscribe_deny,
    )
    return replace(template, permissions=permissions)


def _filled(entries: tuple[str, ...], subjects: Subjects, *, strict: bool) -> tuple[str, ...]:
    if not any(TEMPLATE.search(entry) for entry in entries):
        return entries
    filled: list[str] = []
    for entry in entries:
        for subject in _expanded(entry, subjects, EXPANSIONS_MAX - len(filled), strict=strict):
            if is_valid_subject(subject):
                filled.append(subject)
            elif strict:
                raise BadTemplate("generated invalid subject")
    return tuple(filled)


def _expanded(entry: str, subjects: Subjects, room: int, *, strict: bool) -> list[str]:
    """Return the subjects of one entry: one for each combination of the values of its operations.

    If `strict` is false, a space takes the place of an operation without values, which makes the subject invalid.

    Raises:
        BadTemplate: an operation is unknown, or has no values and `strict` is set, or there are too many subjects.
    """
    tokens, values, count = TEMPLATE.findall(entry), [], 1
    for token in tokens:
        found, tag = subjects.values(token[2:-2].strip())
        if not found and strict:
            raise BadTemplate(f'generated invalid subject "{entry}": "{tag}" is not defined')
        values.append(found or [" "])
        count *= len(values[-1])
        if count > room:
            raise BadTemplate(f"template expansion exceeds limit: {EXPANSIONS_MAX}")
    out = []
    for combination in product(*values):
        subject = entry
        for token, value in zip(tokens, combination, strict=True):
            subject = subject.replace(token, value)
        out.append(subject)
    return out


# Allowed addresses, connection types and times


def may_come_from(grant: Grant, address: str) -> bool:
    """Return whether a user may connect from `address`."""
    if not grant.sources:
        return True
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    for source in grant.sources:
        network = network_of(source)
        if network is None:
            return False
        if ip in network:
            return True
    return False


def known_types(types: tuple[str, ...]) -> frozenset[str] | None:
    """Return the known connection types in `types`, in upper case.

    If `types` is empty, return an empty set, which allows all types. If no type in `types` is known, return None.
    """
    known = frozenset(each.upper() for each in types) & frozenset(CONNECTION_TYPES)
    return None if types and not known else known


def seconds_allowed(grant: Grant, now_s: float) -> float | None:
    """Return the seconds for which a user may be connected; 0 means no limit.

    Return None if the user may not connect now, or if a time or the time zone is invalid.
    """
    if not grant.times:
        return 0.0
    zone: tzinfo | None = None
    if grant.zone:
        try:
            zone = ZoneInfo(grant.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None
    now = datetime.fromtimestamp(now_s, zone)
    longest: float | None = None
    for start, end in grant.times:
        start_s, end_s = second_of_day(start), second_of_day(end)
        if start_s is None or end_s is None:
            return None
        left = _seconds_left(now, start_s, end_s)
        if left is not None and (longest is None or left > longest):
            longest = left
    return longest


def _seconds_left(now: datetime, start_s: int, end_s: int) -> float | None:
    """Return the seconds until a daily time range ends, or None if `now` is outside the range."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    start, end = midnight + timedelta(seconds=start_s), midnight + timedelta(seconds=end_s)
    if start < now < end or (start > end and end > now):
        return end.timestamp() - now.timestamp()
    if start > end and start < now:  # the range spans midnight, and `now` is before midnight
        return (end + timedelta(days=1)).timestamp() - now.timestamp()
    return None
