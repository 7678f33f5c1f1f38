"""Xkeys: Curve25519 keys, and messages that can be read only with the two keys used to seal them.

A sealed message has three parts: `xkv1`, a nonce (24 bytes), and a NaCl box (X25519, XSalsa20, Poly1305).

Source: the nkeys library's README; tests/conformance/test_auth_callout.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.wire.nkeys import CURVE, key_text, public_key

if TYPE_CHECKING:
    from pyjs.base.rng import Rng

VERSION = b"xkv1"
NONCE_SIZE = 24


class SealBroken(ValueError):
    """Raised when a message cannot be sealed or opened; the exception's message is the reason."""


class CurveKeyPair:
    """A private key for encryption, and the text of its public key."""

    def __init__(self, seed: bytes) -> None:
        from nacl.public import PrivateKey

        self._private = PrivateKey(seed)
        self.public = key_text(bytes(self._private.public_key), CURVE)

    def seal(self, data: bytes, receiver: str, rng: Rng) -> bytes:
        """Encrypt `data` for the holder of the public key `receiver`.

        Raises:
            SealBroken: `receiver` is not a key.
        """
        from nacl.public import Box, PublicKey

        key = public_key(receiver, CURVE)
        if key is None:
            raise SealBroken("nkeys: not a valid recipient public curve key")
        nonce = rng.randbytes(NONCE_SIZE)
        return VERSION + bytes(Box(self._private, PublicKey(key)).encrypt(data, nonce))

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Decrypt a message sealed by the holder of the public key `sender`.

        Raises:
            SealBroken: `sender` is not a key, other keys were used to seal the message, or the message was altered.
        """
        from nacl.exceptions import CryptoError
        from nacl.public import Box, PublicKey

        key = public_key(sender, CURVE)
        if key is None:
            raise SealBroken("nkeys: not a valid sender public curve key")
        if len(sealed) <= len(VERSION) + NONCE_SIZE:
            raise SealBroken("nkeys: encrypted input is not valid")
        if not sealed.startswith(VERSION):
            raise SealBroken("nkeys: encrypted input wrong version")
        try:
            return bytes(Box(self._private, PublicKey(key)).decrypt(sealed[len(VERSION) :]))
        except (CryptoError, ValueError):
            raise SealBroken("nkeys: could not decrypt input") from None
