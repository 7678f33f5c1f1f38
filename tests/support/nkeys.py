"""Nkeys made for tests: the creating and signing counterpart of pyjs.wire.nkeys."""

from __future__ import annotations

import base64
import binascii
import hashlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

USER, ACCOUNT = 20 << 3, 0


class Nkey:
    """A key pair of one kind; the same name always yields the same pair."""

    def __init__(self, name: str, kind: int = USER) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
        raw = self._private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        body = bytes([kind]) + raw
        crc = binascii.crc_hqx(body, 0).to_bytes(2, "little")
        self.public = base64.b32encode(body + crc).rstrip(b"=").decode()

    def sign(self, nonce: str, *, url_safe: bool = True) -> str:
        """Return the signature of `nonce`, in one of the two encodings that clients use."""
        signature = self._private.sign(nonce.encode())
        if url_safe:
            return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        return base64.b64encode(signature).decode()
