"""Keys of encrypted streams: the data key in the metadata, and decryption with keys derived from it.

The operator's key decrypts only the data keys, one for each stream. The keys for each purpose and file are
derived from the data key. No error or log line contains a key.

Source: docs/storage-format.md, "Encryption".
"""

from __future__ import annotations

import hmac
from typing import Any

from pyjs_spark.store.packages import needed

CHACHA = 1
AES = 2
BLOCK_SIZES = {CHACHA: 64, AES: 16}  # block sizes of the ciphers' key streams, in bytes
KEY_SIZE = 32
NONCE_SIZE = 12
CIPHERS = "cryptography.hazmat.primitives.ciphers"
WHAT = "encrypted store directories"


class WrongKey(Exception):
    """Raised when a key does not decrypt the data."""


class StreamKey:
    """The data key of one stream."""

    def __init__(self, data_key: bytes) -> None:
        self._data_key = data_key

    def fits(self, nonce: bytes) -> bool:
        """Return whether a file with this nonce was encrypted with this data key."""
        return nonce[NONCE_SIZE:] == self._derive(b"mark" + nonce[:NONCE_SIZE])[: 16 - NONCE_SIZE]

    def open_meta(self, algorithm: int, sealed: bytes, frame: bytes) -> bytes:
        """Return the decrypted map of an envelope; `frame` is the header of the envelope.

        Raises:
            WrongKey: the envelope is encrypted with another key.
        """
        return unseal(algorithm, self._derive(b"meta"), sealed, frame)

    def decrypted(self, algorithm: int, nonce: bytes, data: bytes, at: int) -> bytes:
        """Return the decrypted bytes of a part of a file; `data` begins at offset `at` of the file's body."""
        ciphers = needed(CIPHERS, WHAT)
        key = self._derive(b"file" + nonce)
        block, skip = divmod(at, BLOCK_SIZES[algorithm])
        if algorithm == CHACHA:
            cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, block.to_bytes(16, "little")), None)
        else:
            modes = needed(f"{CIPHERS}.modes", WHAT)
            cipher = ciphers.Cipher(ciphers.algorithms.AES(key), modes.CTR(block.to_bytes(16, "big")))
        context = cipher.decryptor()
        context.update(bytes(skip))
        plain: bytes = context.update(data)
        return plain

    def _derive(self, purpose: bytes) -> bytes:
        return hmac.digest(self._data_key, b"pyjs " + purpose, "sha256")


def open_data_key(key: str, algorithm: int, wrapped: bytes) -> StreamKey:
    """Return the data key in the metadata, unwrapped with the operator's key.

    Raises:
        WrongKey: the data key is wrapped with another key.
    """
    kdf = needed("cryptography.hazmat.primitives.kdf.hkdf", WHAT)
    hashes = needed("cryptography.hazmat.primitives.hashes", WHAT)
    made = kdf.HKDF(hashes.SHA256(), KEY_SIZE, salt=None, info=b"pyjs-server data keys")
    return StreamKey(unseal(algorithm, made.derive(key.encode()), wrapped, b""))


def unseal(algorithm: int, key: bytes, sealed: bytes, about: bytes) -> bytes:
    """Return the plaintext of `sealed`, which has the nonce, the ciphertext and the tag of an AEAD.

    `about` is the associated data.

    Raises:
        WrongKey: the key, the algorithm or the data is wrong.
    """
    aead: Any = needed(f"{CIPHERS}.aead", WHAT)
    wrong = needed("cryptography.exceptions", WHAT).InvalidTag
    if algorithm not in BLOCK_SIZES:
        raise WrongKey
    opener = aead.AESGCM(key) if algorithm == AES else aead.ChaCha20Poly1305(key)
    try:
        plain: bytes = opener.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], about)
        return plain
    except (wrong, ValueError):
        raise WrongKey from None
