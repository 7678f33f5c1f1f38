"""User keys of NATS: a seed signs the server's nonce, and its public key identifies the user.

    seed file   = text; the seed is the word that begins with SU
    seed        = base32( 18<<3 | user>>5, (user&31)<<3, key: 32 bytes, crc: 2 bytes )   "SU...", no padding
    public key  = base32( user, key: 32 bytes, crc: 2 bytes )                            "U..."
    user        = 20<<3
    crc         = CRC-16/XMODEM of the bytes before it, little-endian
    creds file  = the JWT and the seed, each between lines of dashes

Source: nats-io/nkeys, doc "Decentralized JWT authentication".
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from pyjs_spark.errors import BadCredentials

USER = 20 << 3
JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+")
SEED = re.compile(r"\bSU[A-Z2-7]{56}\b")
NO_CRYPTOGRAPHY = (
    "nkey_seed_file and creds_file need a package where the connection is made: pip install cryptography"
)


class UserKey:
    """The private key of one user."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError:
            raise BadCredentials(NO_CRYPTOGRAPHY) from None
        self._key = Ed25519PrivateKey.from_private_bytes(key)

    @property
    def public(self) -> str:
        """The public key, "U..."."""
        return encoded(bytes([USER]) + self._key.public_key().public_bytes_raw())

    def sign(self, nonce: str) -> str:
        """Return the signature of INFO's nonce, encoded for CONNECT."""
        return base64.urlsafe_b64encode(self._key.sign(nonce.encode())).rstrip(b"=").decode()


def encoded(raw: bytes) -> str:
    """Return `raw` and its checksum in base32, without padding; `raw` is a prefix and a key."""
    crc = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + crc).rstrip(b"=").decode()


def read_seed(path: str) -> UserKey:
    """Return the key in a file with a user's seed.

    Raises:
        BadCredentials: the file cannot be read, or has no valid seed.
    """
    return _key_in(_text(path), path)


def read_creds(path: str) -> tuple[str, UserKey]:
    """Return the user's JWT and key in a credentials file.

    Raises:
        BadCredentials: the file cannot be read, or lacks the JWT or a valid seed.
    """
    text = _text(path)
    jwt = JWT.search(text)
    if jwt is None:
        raise BadCredentials(f"{path}: no user JWT in it; a creds file comes from `nsc generate creds`")
    return jwt[1], _key_in(text, path)


def _key_in(text: str, path: str) -> UserKey:
    found = SEED.search(text)
    if found is None:
        raise BadCredentials(f"{path}: no user seed (58 letters from SU on) in it")
    raw = base64.b32decode(found[0] + "=" * (-len(found[0]) % 8))
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise BadCredentials(f"{path}: the seed's checksum is wrong; is a letter missing?")
    return UserKey(raw[2:-2])


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadCredentials(f"{path}: cannot be read: {error}") from None
