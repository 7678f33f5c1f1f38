"""Nkeys: Ed25519 public keys as texts with their kind (user, account, ...), and checks of signatures.

The text is base 32, without padding, of: kind (1 byte), key (32), CRC-16 of both (2, little endian).

Source: https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt and the nkeys library's README;
tests/conformance/test_nkeys.py.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.base.rng import Rng

USER = 20 << 3  # kind of a user: the text begins with U
KEY_SIZE = 32  # bytes of an Ed25519 public key
TEXT_SIZE = 56  # characters: 35 bytes in base 32
NONCE_SIZE = 11  # bytes; 15 characters in INFO


def public_key(text: str, kind: int) -> bytes | None:
    """Return the 32 bytes of the key in `text`; None: not a key of that kind."""
    if len(text) != TEXT_SIZE or not text.isascii():
        return None
    try:
        data = base64.b32decode(text)
    except binascii.Error:
        return None
    body, crc = data[:-2], int.from_bytes(data[-2:], "little")
    if body[0] != kind or binascii.crc_hqx(body, 0) != crc:
        return None
    return body[1:]


def make_nonce(rng: Rng) -> str:
    """Return a nonce for one client to sign."""
    return base64.urlsafe_b64encode(rng.randbytes(NONCE_SIZE)).rstrip(b"=").decode()


def is_signed(nonce: str, signature: str, key: bytes) -> bool:
    """Return whether `signature` (base 64 of either alphabet) is that of `nonce` under `key`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not nonce or not signature.isascii() or len(signature) > 128:
        return False
    text = signature.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        made = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        Ed25519PublicKey.from_public_bytes(key).verify(made, nonce.encode())
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True
