"""Claims of the authorization callout: the answer of the service that authenticates clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.claims.fields import Head, Issue, head_of, text, time_issues
from pyjs.claims.token import TokenFault
from pyjs.wire.nkeys import ACCOUNT, SERVER, USER, public_key

if TYPE_CHECKING:
    from pyjs.claims.token import Token


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """The response of the service that authenticates clients: the token of a user, or an error."""

    head: Head
    jwt: str = ""
    error: str = ""
    issuer_account: str = ""  # if set, the issuer is a signing key of this account


def response_of(token: Token) -> AuthorizationResponse:
    """Return the claims in the token of an authorization response.

    Raises:
        TokenFault: the token is of another kind, or a claim has the wrong type.
    """
    if token.kind != "authorization_response":
        raise TokenFault("not an authorization request claim")
    nats = token.nats
    return AuthorizationResponse(
        head_of(token), text(nats, "jwt"), text(nats, "error"), text(nats, "issuer_account")
    )


def response_issues(response: AuthorizationResponse, now_s: int) -> list[Issue]:
    """Return the issues in a response at `now_s`, in seconds since the epoch."""
    issues = []
    if public_key(response.head.subject, USER) is None:
        issues.append(Issue("Subject must be a user public key"))
    if public_key(response.head.audience, SERVER) is None:
        issues.append(Issue("Audience must be a server public key"))
    if not response.error and not response.jwt:
        issues.append(Issue("Error or Jwt is required"))
    if response.error and response.jwt:
        issues.append(Issue("Only Error or Jwt can be set"))
    if response.issuer_account and public_key(response.issuer_account, ACCOUNT) is None:
        issues.append(Issue("issuer_account is not an account public key"))
    return issues + time_issues(response.head, now_s)
