"""Encryption keys: the configured key, one data key for each stream, and the ciphers that use these keys.

Each stream has a random data key. It is wrapped (encrypted) with a key that is derived from the configured key
(HKDF-SHA256). The configured key encrypts nothing else. When an operator replaces it and sets the old one as
`prev_key`, only the 32 bytes of each data key are wrapped again. Other keys are derived from the data key, one for
each purpose (HMAC-SHA256):

    metadata, logs      an AEAD (ChaCha20-Poly1305 or AES-256-GCM) with a random nonce in front
    segment, index      a key stream (ChaCha20 or AES-256-CTR) by offset in the file, with a random nonce in the
                        header: one damaged byte damages one byte of the plain image

This module knows nothing of files. Keys are never logged. `cryptography` is imported lazily, since only encryption
needs it.

Source: docs/storage-format.md, "Encryption".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    Bytes = bytes | bytearray | memoryview

CHACHA: Final = 1
AES: Final = 2
ALGORITHMS = {"chacha": CHACHA, "aes": AES}
KEY_SIZE = 32
NONCE_SIZE = 12
TAG_SIZE = 16
SEGMENT_NONCE_SIZE = 16  # 12 random bytes, and 4 that identify the data key
BLOCK_SIZES = {CHACHA: 64, AES: 16}  # bytes of a block of each key stream


class Locked(PyjsError):
    """Raised for an intact file that is encrypted with an unknown key. The file must not be changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class WrongKey(PyjsError):
    """Raised if a key does not decrypt the data."""


class KeyRing:
    """The configured keys, which wrap and unwrap the data keys of streams."""

    def __init__(
        self, key: str, algorithm: int, randbytes: Callable[[int], bytes], prev_key: str = ""
    ) -> None:
        """Set the current key, which wraps and unwraps data keys, and the previous key, which only unwraps them.

        An empty `prev_key` means that there is no previous key.
        """
        assert key
        self._algorithm = algorithm
        self._randbytes = randbytes
        self._master = _master_key(key)
        self._before = _master_key(prev_key) if prev_key else None

    def new_key(self) -> StreamKey:
        """Return a new data key for a stream."""
        return self._wrapped(self._algorithm, self._randbytes(KEY_SIZE))

    def open_key(self, algorithm: int, wrapped: bytes) -> tuple[StreamKey, bool]:
        """Return the data key in `wrapped`, and whether the previous configured key unwrapped it.

        If the previous key did, the returned StreamKey has the data key wrapped with the current key.

        Raises:
            WrongKey: the algorithm is unknown, or neither of the configured keys unwraps the data key.
        """
        if algorithm not in BLOCK_SIZES:
            raise WrongKey(f"algorithm {algorithm} is not known")
        try:
            data_key = Sealer(algorithm, self._master, self._randbytes).open(wrapped, b"")
            return StreamKey(algorithm, data_key, wrapped, self._randbytes), False
        except WrongKey:
            if self._before is None:
                raise
        data_key = Sealer(algorithm, self._before, self._randbytes).open(wrapped, b"")
        return self._wrapped(algorithm, data_key), True

    def _wrapped(self, algorithm: int, data_key: bytes) -> StreamKey:
        wrapped = Sealer(algorithm, self._master, self._randbytes).seal(data_key, b"")
        return StreamKey(algorithm, data_key, wrapped, self._randbytes)


class StreamKey:
    """The data key of one stream."""

    def __init__(
        self, algorithm: int, data_key: bytes, wrapped: bytes, randbytes: Callable[[int], bytes]
    ) -> None:
        self.algorithm = algorithm
        self.wrapped = wrapped  # the wrapped data key; not secret
        self._data_key = data_key
        self._randbytes = randbytes
        self.meta = self.sealer(b"meta")

    def sealer(self, purpose: bytes) -> Sealer:
        """Return the AEAD whose key is derived from the data key for `purpose`."""
        return Sealer(self.algorithm, self._derive(purpose), self._randbytes)

    def new_nonce(self) -> bytes:
        """Return a nonce for a new file; `fits` recognizes it as a nonce of this data key."""
        chance = self._randbytes(NONCE_SIZE)
        return chance + self._mark_of(chance)

    def fits(self, nonce: bytes) -> bool:
        """Return whether the file with this nonce was encrypted with this data key."""
        return nonce[NONCE_SIZE:] == self._mark_of(nonce[:NONCE_SIZE])

    def stream(self, algorithm: int, nonce: bytes) -> KeyStream:
        """Return the key stream of the file with this nonce."""
        return KeyStream(algorithm, self._derive(b"file" + nonce))

    def _mark_of(self, chance: bytes) -> bytes:
        return self._derive(b"mark" + chance)[: SEGMENT_NONCE_SIZE - NONCE_SIZE]

    def _derive(self, purpose: bytes) -> bytes:
        import hmac  # imported lazily: every store imports this module

        return hmac.digest(self._data_key, b"pyjs " + purpose, "sha256")


class Sealer:
    """An AEAD with one key for small pieces of data; its output is nonce, ciphertext and tag."""

    def __init__(self, algorithm: int, key: bytes, randbytes: Callable[[int], bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

        self._aead: AESGCM | ChaCha20Poly1305 = AESGCM(key) if algorithm == AES else ChaCha20Poly1305(key)
        self._randbytes = randbytes

    def seal(self, plain: bytes, about: bytes) -> bytes:
        """Return `plain` encrypted. `about` is authenticated too, but not stored; `open` needs the same bytes."""
        nonce = self._randbytes(NONCE_SIZE)
        return nonce + self._aead.encrypt(nonce, plain, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Return the plain bytes that `seal` encrypted.

        Raises:
            WrongKey: another key encrypted `sealed`, or `sealed` or `about` was changed.
        """
        from cryptography.exceptions import InvalidTag

        if len(sealed) < NONCE_SIZE + TAG_SIZE:
            raise WrongKey(f"{len(sealed)} bytes are not sealed")
        try:
            return self._aead.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], about)
        except InvalidTag:
            raise WrongKey("it was sealed with another key") from None


class KeyStream:
    """The key stream of one file; `apply` both encrypts and decrypts."""

    def __init__(self, algorithm: int, key: bytes) -> None:
        assert algorithm in BLOCK_SIZES
        self._algorithm = algorithm
        self._key = key
        self._at = -1  # offset at which `_context` continues

    def apply(self, data: Bytes, at: int) -> bytes:
        """Return `data` XOR the key stream; the first byte of `data` has the offset `at` in the key stream."""
        if at != self._at:
            self._seek(at)
        out = self._context.update(data)
        self._at = at + len(data)
        return out

    def _seek(self, at: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        block, skip = divmod(at, BLOCK_SIZES[self._algorithm])
        if self._algorithm == CHACHA:
            cipher = Cipher(algorithms.ChaCha20(self._key, block.to_bytes(16, "little")), None)
            self._context = cipher.encryptor()
        else:
            self._context = Cipher(
                algorithms.AES(self._key), modes.CTR(block.to_bytes(16, "big"))
            ).encryptor()
        self._context.update(bytes(skip))


def _master_key(key: str) -> bytes:
    """Return the key that wraps data keys, derived from the configured key."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_SIZE, salt=None, info=b"pyjs-server data keys").derive(key.encode())
