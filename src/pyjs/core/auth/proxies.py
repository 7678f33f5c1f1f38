"""Trusted proxies: each signs the nonces of its clients with a key known to the server.

This module knows nothing of PROXY headers, which state addresses without proof.

Source: texts and order of nats-server 2.15.1, tests/conformance/test_trusted_proxies.py.
"""

from __future__ import annotations

from typing import NamedTuple

from pyjs.wire.nkeys import any_public_key, is_signed


class ProxyFault(NamedTuple):
    """The reason for refusing a login: the client came through a proxy that is not trusted, or without one."""

    reason: str  # the close reason of the connection
    text: str  # for the log


NOT_TRUSTED = ProxyFault("Proxy Not Trusted", "proxy is not trusted")
REQUIRED = ProxyFault("Proxy Required", "proxy connection required")


class TrustedProxies:
    """The public keys of the proxies that the server trusts."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._keys = {text: any_public_key(text) or b"" for text in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def signer(self, nonce: str, signature: str) -> str:
        """Return the public key of the proxy that signed `nonce`, or "" if none did."""
        return next((text for text, key in self._keys.items() if is_signed(nonce, signature, key)), "")
