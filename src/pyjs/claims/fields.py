"""Typed readers of decoded claims, and the fields that all kinds of claims share.

A field that is missing or null has the zero value of its type, as in nats-server. The size of a token limits the
number of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.bounds import INT64
from pyjs.claims.token import TokenFault

if TYPE_CHECKING:
    from typing import Any

    from pyjs.claims.token import Token

    Map = dict[str, Any]


def text(fields: Map, name: str) -> str:
    """Return the string in the field `name`, or "" if the field is missing or null.

    Raises:
        TokenFault: the value is not a string.
    """
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(value, name, "string")
    return value


def number(fields: Map, name: str, default: int = 0) -> int:
    """Return the 64-bit integer in the field `name`, or `default` if the field is missing or null.

    Raises:
        TokenFault: the value is not a 64-bit integer.
    """
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not INT64.low <= value <= INT64.high:
        raise _wrong(value, name, "int64")
    return value


def flag(fields: Map, name: str) -> bool:
    """Return the bool in the field `name`, or False if the field is missing or null.

    Raises:
        TokenFault: the value is not a bool.
    """
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(value, name, "bool")
    return value


def texts(fields: Map, name: str) -> tuple[str, ...]:
    """Return the strings of the list in the field `name`, or () if the field is missing or null.

    Raises:
        TokenFault: the value is not a list of strings.
    """
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(value, name, "[]string")
    return tuple(value)


def block(fields: Map, name: str) -> Map:
    """Return the object in the field `name`, or {} if the field is missing or null.

    Raises:
        TokenFault: the value is not an object.
    """
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(value, name, "struct")
    return value


def blocks(fields: Map, name: str) -> tuple[Map, ...]:
    """Return the objects of the list in the field `name`, or () if the field is missing or null.

    Raises:
        TokenFault: the value is not a list of objects.
    """
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _wrong(value, name, "[]struct")
    return tuple(value)


def numbers(fields: Map, name: str) -> dict[str, int]:
    """Return the object of integers in the field `name`, or {} if the field is missing or null.

    Raises:
        TokenFault: the value is not an object of integers.
    """
    found = block(fields, name)
    return {key: number(found, key) for key in found}


def _wrong(value: object, name: str, kind: str) -> TokenFault:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return TokenFault(
        f"json: cannot unmarshal {names[type(value)]} into Go struct field {name} of type {kind}"
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The fields common to all claims. Times are in seconds since the epoch; 0 means not set."""

    issuer: str = ""
    subject: str = ""
    name: str = ""
    audience: str = ""
    id: str = ""
    issued_at: int = 0
    not_before: int = 0
    expires: int = 0
    tags: tuple[str, ...] = ()


def head_of(token: Token) -> Head:
    """Return the common fields of the claims in a token.

    Raises:
        TokenFault: a field has the wrong type.
    """
    claims = token.claims
    return Head(
        text(claims, "iss"),
        text(claims, "sub"),
        text(claims, "name"),
        text(claims, "aud"),
        text(claims, "jti"),
        number(claims, "iat"),
        number(claims, "nbf"),
        number(claims, "exp"),
        texts(token.nats, "tags"),
    )


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem in well-formed claims; claims with a blocking issue must not be used."""

    description: str
    blocking: bool = True
    time_check: bool = False


def time_issues(head: Head, now_s: int) -> list[Issue]:
    """Return the issues of claims that have expired, or are not valid yet, at `now_s`."""
    issues = []
    if 0 < head.expires < now_s:
        issues.append(Issue("claim is expired", False, True))
    if head.not_before > 0 and head.not_before > now_s:
        issues.append(Issue("claim is not yet valid", False, True))
    return issues


def are_blocking(issues: list[Issue], *, times: bool) -> bool:
    """Return whether claims with these issues must be refused.

    If `times` is true, claims that have expired or are not valid yet must be refused too.
    """
    return any(each.blocking or (times and each.time_check) for each in issues)
