"""JSON Web Tokens of NATS: header, claims and signature; they are decoded, checked and created here.

    base64url(header) . base64url(claims) . base64url(signature of the text before it)

The issuer in the claims is the public key that verifies the signature: a decoded token proves who signed it, but not
that the signer is trusted. In version 1, claims have their kind at the top level, and the signature covers only the
claims.

This module knows nothing of the meaning of the claims.
Source: nats-io/jwt; texts as nats-server 2.15 (tests/conformance/test_jwt_login.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyjs.base.json_scan import JsonFault, documents
from pyjs.wire.nkeys import ACCOUNT, OPERATOR, SERVER, USER, public_key, verifies

if TYPE_CHECKING:
    from typing import Any

    from pyjs.wire.nkeys import KeyPair

TOKEN_SIZE_MAX = 1024 * 1024
VERSION = 2  # version of created tokens
HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
ALGORITHMS = ("ed25519", "ed25519-nkey")
BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
# For each kind of claims: the kinds of keys that may sign them.
SIGNERS: dict[str, tuple[int, ...]] = {
    "operator": (OPERATOR,),
    "account": (ACCOUNT, OPERATOR),
    "user": (ACCOUNT,),
    "activation": (ACCOUNT, OPERATOR),
    "authorization_request": (SERVER,),
    "authorization_response": (ACCOUNT,),
}
KEY_NAMES = {ACCOUNT: "account", OPERATOR: "operator", SERVER: "server", USER: "user"}
UNKNOWN_KINDS = {"cluster": "ClusterClaims are not supported", "server": "ServerClaims are not supported"}
DECORATED = re.compile(r"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}(?:\r?\n|\Z)")


class TokenFault(ValueError):
    """Raised for an invalid token; its message is that of nats-server."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token with a valid signature by its issuer."""

    text: str
    kind: str  # of the claims; unknown kinds are allowed
    version: int
    claims: dict[str, Any]  # as decoded
    nats: dict[str, Any]  # the claims that belong to the kind

    @property
    def issuer(self) -> str:
        """The public key that signed the token."""
        return str(self.claims.get("iss") or "")


def decode(text: str, *, generic: bool = False) -> Token:
    """Decode the token in `text` and check its signature.

    If `generic` is true, the claims may be of any kind; the algorithm in the header determines the signed bytes.

    Raises:
        TokenFault: the text is too large or is not a token, or it lacks a valid signature for its kind.
    """
    if len(text) > TOKEN_SIZE_MAX:
        raise TokenFault(f"token size {len(text)} exceeds maximum of {TOKEN_SIZE_MAX} bytes: token too large")
    chunks = text.split(".")
    if len(chunks) != 3:
        raise TokenFault("expected 3 chunks")
    algorithm = _algorithm_of(_object(_bytes_of(chunks[0])))
    claims = _object(_bytes_of(chunks[1]))
    kind, version, nats = _kind_of(claims)
    signature = _bytes_of(chunks[2])
    token = Token(text, kind, version, claims, nats)
    whole = algorithm != ALGORITHMS[0] if generic else version > 1 and kind in SIGNERS
    if not _is_signed(token.issuer, f"{chunks[0]}.{chunks[1]}" if whole else chunks[1], signature):
        raise TokenFault(f"claim failed V{1 + whole} signature verification")
    if not generic:
        _check_signer(token)
    return token


def undecorated(text: str) -> str:
    """Return the token in the text of a file, without the lines of dashes before and after it."""
    found = DECORATED.search(text)
    return text if found is None else found[1]


def encode(claims: dict[str, Any], key: KeyPair, issued_at: int) -> str:
    """Return a token with `claims`, signed with `key`.

    The issuer, the time and the id are set here. `issued_at` is in seconds since the epoch.
    """
    body = {name: value for name, value in claims.items() if name not in ("iss", "iat", "jti")}
    body |= {"iss": key.public, "iat": issued_at}
    digest = hashlib.new("sha512_256", orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()
    body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    signed = f"{_text_of(orjson.dumps(HEADER))}.{_text_of(orjson.dumps(body))}"
    return f"{signed}.{_text_of(key.sign(signed.encode()))}"


def _text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes_of(chunk: str) -> bytes:
    right = BASE64URL.match(chunk)
    end = right.end() if right is not None else 0
    if end < len(chunk) or len(chunk) % 4 == 1:
        at = end if end < len(chunk) else len(chunk)
        raise TokenFault(f"illegal base64 data at input byte {at}")
    try:
        return base64.urlsafe_b64decode(chunk + "=" * (-len(chunk) % 4))
    except binascii.Error:
        raise TokenFault(f"illegal base64 data at input byte {len(chunk)}") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = _read_slowly(data)
    if not isinstance(found, dict):
        raise TokenFault("json: the claims are not an object")
    return found


def _read_slowly(data: bytes) -> object:
    """Return the JSON document in `data`, which the JSON library refused, or raise TokenFault if it is invalid."""
    try:
        found = list(documents(data))
    except JsonFault as fault:
        raise TokenFault(fault.lenient_text()) from None
    if len(found) != 1:
        raise TokenFault("unexpected end of JSON input")
    return found[0]


def _algorithm_of(header: dict[str, Any]) -> str:
    kind, algorithm = str(header.get("typ", "")), str(header.get("alg", ""))
    if kind.upper() != "JWT":
        raise TokenFault(f'not supported type "{kind}"')
    if algorithm.lower() not in ALGORITHMS:
        raise TokenFault(f'unexpected "{algorithm}" algorithm')
    return algorithm.lower()


def _kind_of(claims: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the kind and the version of `claims`, and the fields for that kind in the form of version 2."""
    nats = claims.get("nats") or {}
    if not isinstance(nats, dict):
        raise TokenFault("json: cannot unmarshal the field nats, which is not an object")
    kind, version = claims.get("type"), 1
    if kind:
        moved = {name: claims[name] for name in ("type", "tags", "issuer_account") if name in claims}
        nats = {name: value for name, value in nats.items() if name not in moved} | moved
    else:
        kind, version = nats.get("type", ""), nats.get("version", 0)
    if not isinstance(kind, str) or type(version) is not int:
        raise TokenFault("json: cannot unmarshal the kind or version of the claims")
    if version > VERSION:
        raise TokenFault("JWT was generated by a newer version ")
    if kind in UNKNOWN_KINDS:
        raise TokenFault(UNKNOWN_KINDS[kind])
    if kind in SIGNERS and version not in (1, 2):
        raise TokenFault(f"library supports version {VERSION} or less - received {version}")
    return kind, version, nats


def _is_signed(issuer: str, signed: str, signature: bytes) -> bool:
    for kind in KEY_NAMES:
        key = public_key(issuer, kind)
        if key is not None:
            return signed.isascii() and verifies(signed.encode(), signature, key)
    return False


def _check_signer(token: Token) -> None:
    signers = SIGNERS.get(token.kind)
    if signers is not None and all(public_key(token.issuer, kind) is None for kind in signers):
        names = " ".join(KEY_NAMES[kind] for kind in signers)
        raise TokenFault(f"unable to validate expected prefixes - [{names}]")
