"""Nkeys: Ed25519 keys, written as strings that include their kind (user, account, ...), and signatures.

The text of a public key is the base 32 form, without padding, of three parts: the kind (1 byte), the key (32 bytes),
and the CRC-16 of both (2 bytes, little endian). In a seed, two bytes precede the key in place of the kind; they have
the marker of a seed (5 bits) and the kind of the key (5 bits).

Source: https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt and the nkeys library's README;
tests/conformance/test_nkeys.py.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.base.rng import Rng

# Kinds: five bits each, which determine the first letter of the text.
ACCOUNT = 0 << 3  # A
OPERATOR = 14 << 3  # O
SERVER = 13 << 3  # N
USER = 20 << 3  # U
CURVE = 23 << 3  # X: a key for encryption, see xkeys.py
SEED = 18 << 3  # S
SIGNING = (ACCOUNT, OPERATOR, SERVER, USER, 2 << 3, 12 << 3)  # the last two are C, a cluster, and M, a module
KEY_SIZE = 32  # bytes of an Ed25519 public key
TEXT_SIZE = 56  # characters: 35 bytes in base 32
SIGNATURE_SIZE = 64
NONCE_SIZE = 11  # bytes; 15 characters in INFO


def public_key(text: str, kind: int) -> bytes | None:
    """Return the 32 bytes of the key in `text`, or None if `text` is not a key of that kind."""
    found = _key_of_any_kind(text)
    return None if found is None or found[0] != kind else found[1:]


def any_public_key(text: str) -> bytes | None:
    """Return the 32 bytes of the key in `text`, or None if `text` is not a key of a kind that signs."""
    found = _key_of_any_kind(text)
    return None if found is None or found[0] not in SIGNING else found[1:]


def _key_of_any_kind(text: str) -> bytes | None:
    """Return the kind byte followed by the 32-byte key, or None if `text` is not a key."""
    if len(text) != TEXT_SIZE or not text.isascii():
        return None
    try:
        data = base64.b32decode(text)
    except binascii.Error:
        return None
    body, crc = data[:-2], int.from_bytes(data[-2:], "little")
    return body if binascii.crc_hqx(body, 0) == crc else None


def key_text(key: bytes, kind: int) -> str:
    """Return the text of a public key of this kind."""
    return _checked_text(bytes([kind]) + key)


def seed_text(seed: bytes, kind: int) -> str:
    """Return the text of the seed of a key of this kind."""
    return _checked_text(bytes([SEED | kind >> 5, (kind & 31) << 3]) + seed)


def seed_bytes(text: str, kind: int) -> bytes | None:
    """Return the 32 bytes of the seed in `text`, or None if `text` is not the seed of a key of that kind."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    return raw[2:-2] if len(raw) == KEY_SIZE + 4 and seed_text(raw[2:-2], kind) == text else None


def _checked_text(body: bytes) -> str:
    crc = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + crc).rstrip(b"=").decode()


class KeyPair:
    """A private key for signatures, and the text of its public key."""

    def __init__(self, seed: bytes, kind: int) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        self.public = key_text(self._private.public_key().public_bytes(*raw), kind)

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature of `data`."""
        return self._private.sign(data)


def make_nonce(rng: Rng) -> str:
    """Return a nonce for one client to sign."""
    return base64.urlsafe_b64encode(rng.randbytes(NONCE_SIZE)).rstrip(b"=").decode()


def verifies(data: bytes, signature: bytes, key: bytes) -> bool:
    """Return whether `signature` is the signature of `data` under `key`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(signature) != SIGNATURE_SIZE:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (ValueError, InvalidSignature):
        return False
    return True


def signature_bytes(text: str) -> bytes | None:
    """Return the bytes of a signature in base 64 of either alphabet, as sent by clients, or None if invalid."""
    if not text.isascii() or len(text) > 128:
        return None
    plain = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def is_signed(nonce: str, signature: str, key: bytes) -> bool:
    """Return whether `signature` (base 64 of either alphabet) is the signature of `nonce` under `key`."""
    made = signature_bytes(signature)
    return bool(nonce) and made is not None and verifies(nonce.encode(), made, key)
