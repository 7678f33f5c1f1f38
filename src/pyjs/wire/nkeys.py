"""Nkeys: Ed25519 public keys in a text that names what they are for, and the signatures that prove them.

A text is base 32 without padding: a byte for the kind, 32 of the key, two of a CRC-16 over both, the low one first.

Source: https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt and the nkeys library's README;
tests/conformance/test_nkeys.py.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.base.rng import Rng

USER = 20 << 3  # the kind that begins with U
KEY_SIZE = 32  # bytes of an Ed25519 public key
TEXT_SIZE = 56  # characters: 35 bytes in base 32
NONCE_SIZE = 11  # bytes; 15 characters in INFO


def public_key(text: str, kind: int) -> bytes | None:
    """Return the key that `text` stands for; None: it is no key of that kind."""
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
    """Return what one client has to sign."""
    return base64.urlsafe_b64encode(rng.randbytes(NONCE_SIZE)).rstrip(b"=").decode()


def is_signed(nonce: str, signature: str, key: bytes) -> bool:
    """Return whether `signature`, in either form of base 64, is that of `nonce` by the owner of `key`."""
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
