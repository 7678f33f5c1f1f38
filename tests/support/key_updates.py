"""A TLS 1.3 client that sends KeyUpdate records: Python's ssl cannot, so its logged secret seals them here."""

from __future__ import annotations

import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

# RFC 8446, 4.6.3: a handshake message of one byte; 1 requests one from the peer. Then the real type of the record.
KEY_UPDATE = b"\x18\x00\x00\x01\x01\x16"
SECRET = "CLIENT_TRAFFIC_SECRET_0"


class UpdatingClient:
    """The client's end of a stream, without a socket; it must not have sent data since the handshake."""

    def __init__(self, ca_file: Path, keylog: Path) -> None:
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(keylog)
        self._keylog = keylog
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def step(self) -> bool:
        """Continue the handshake; return whether it is over."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def key_updates(self, count: int) -> bytes:
        """Return `count` KeyUpdate records; each is sealed with the key that the previous one announced."""
        name = (self.object.cipher() or ("", "", 0))[0]
        algorithm = hashes.SHA384() if name.endswith("SHA384") else hashes.SHA256()
        size = 32 if "256_GCM" in name else 16
        lines = self._keylog.read_text("ascii").splitlines()
        (secret,) = (bytes.fromhex(line.split()[2]) for line in lines if line.startswith(SECRET))
        records = []
        head = struct.pack(">BHH", 0x17, 0x0303, len(KEY_UPDATE) + 16)
        for _ in range(count):
            key, nonce = _expanded(algorithm, secret, b"key", size), _expanded(algorithm, secret, b"iv", 12)
            records.append(head + AESGCM(key).encrypt(nonce, KEY_UPDATE, head))
            secret = _expanded(algorithm, secret, b"traffic upd", algorithm.digest_size)
        return b"".join(records)


def _expanded(algorithm: hashes.HashAlgorithm, secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label of RFC 8446, 7.1, with an empty context."""
    whole = b"tls13 " + label
    return HKDFExpand(algorithm, size, struct.pack(">HB", size, len(whole)) + whole + b"\0").derive(secret)
