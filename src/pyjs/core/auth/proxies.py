"""Trusted proxies: each signs the nonce of the clients that it brings, with a key that the server knows.

Knows nothing of PROXY headers, which give addresses: those prove nothing, signatures do.

Source: texts and order of nats-server 2.15.1, tests/conformance/test_trusted_proxies.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyjs.wire.nkeys import any_public_key, is_signed


@dataclass(frozen=True, slots=True)
class ProxyFault:
    """The reason for which a login is refused: its proxy, or that it has none."""

    reason: str  # for which the connection is closed
    text: str  # for the log


NOT_TRUSTED = ProxyFault("Proxy Not Trusted", "proxy is not trusted")
REQUIRED = ProxyFault("Proxy Required", "proxy connection required")


class TrustedProxies:
    """The public keys of proxies."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._keys = {text: any_public_key(text) or b"" for text in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def signer(self, nonce: str, signature: str) -> str:
        """Return the public key whose proxy signed `nonce`; "": none did."""
        return next((text for text, key in self._keys.items() if is_signed(nonce, signature, key)), "")
