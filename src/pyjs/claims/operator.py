"""Claims of an operator: the keys that may sign accounts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.claims.fields import Head, flag, head_of, text, texts
from pyjs.claims.token import TokenFault

if TYPE_CHECKING:
    from pyjs.claims.token import Token

VERSION_PART = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class OperatorClaims:
    """The claims of an operator."""

    head: Head
    signing_keys: tuple[str, ...] = ()
    account_server_url: str = ""
    system_account: str = ""
    assert_server_version: str = ""  # the lowest server version that the operator allows; "": any
    strict_signing_key_usage: bool = False  # the operator's main key must not sign accounts

    @property
    def trusted_keys(self) -> tuple[str, ...]:
        """The public keys that may sign the tokens of accounts."""
        own = () if self.strict_signing_key_usage else (self.head.subject,)
        return (*own, *self.signing_keys)


def operator_of(token: Token) -> OperatorClaims:
    """Return the claims in the token of an operator.

    Raises:
        TokenFault: the token is of another kind, or a claim has the wrong type.
    """
    if token.kind != "operator":
        raise TokenFault("not operator claim")
    nats = token.nats
    return OperatorClaims(
        head_of(token),
        texts(nats, "signing_keys"),
        text(nats, "account_server_url"),
        text(nats, "system_account"),
        text(nats, "assert_server_version"),
        flag(nats, "strict_signing_key_usage"),
    )


def version_parts(version: str) -> tuple[int, int, int]:
    """Return (major, minor, update) of an asserted server version, or (0, 0, 0) if `version` is empty.

    Raises:
        TokenFault: `version` is not a version.
    """
    if not version:
        return 0, 0, 0
    parts = version.split(".")
    if len(parts) != 3:
        raise TokenFault("asserted server version must be of the form <major>.<minor>.<update>")
    for part in parts:
        if not VERSION_PART.fullmatch(part):
            raise TokenFault(f"asserted server version cant parse {part} to int")
    major, minor, update = (int(part) for part in parts)
    if min(major, minor, update) < 0:
        raise TokenFault(f"asserted server version can'b contain negative values: {version}")
    return major, minor, update
