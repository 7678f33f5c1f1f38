"""Text of the protocol without its secrets, for the log.

As in nats-server, the values of pass, auth_token, jwt, sig, nkey and proxy_sig in CONNECT are replaced. In addition,
these names may be in upper or lower case, and JWTs and seeds of nkeys are replaced anywhere, even in payloads
(tests/unit/wire/test_secrets.py).
"""

from __future__ import annotations

import re

HIDDEN = "[REDACTED]"
FIELD = re.compile(
    r'("?\b(?:pass\w*|auth_token|jwt|sig|nkey|proxy_sig)"?\s*[:=]\s*)'
    r'(?:(")(?:[^"\\]|\\.)*("|\\?$)|[^\s",}\]]+)',
    re.IGNORECASE,
)
NAME = re.compile(r'"([^":]*)"\s*:')  # one with an escape may be any of those above
# The parts of a JWT are base64url; a seed is base32 of 36 bytes, or 58 characters.
KEYS = re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}|\bS[ACNOUXP][A-Z2-7]{20,}")


def without_secrets(text: str) -> str:
    """Return a protocol line or a payload with secrets replaced."""
    if text.startswith("CONNECT"):
        if any("\\u" in name for name in NAME.findall(text)):
            return f"CONNECT {HIDDEN}"
        text = FIELD.sub(_masked, text)
    return KEYS.sub(HIDDEN, text)


def _masked(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or ''}{HIDDEN}{found[3] or ''}"
