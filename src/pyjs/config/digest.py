"""The digest of a configuration: equal for files with equal contents, and equal to nats-server's.

It is the SHA-256 of the parsed map as compact JSON, keys sorted, with a line end. Comments, order and
spelling of numbers do not change it; unused variables do.
Source: behaviour of nats-server 2.15.1, compared in tests/unit/config/test_peer.py.
"""

from __future__ import annotations

from pyjs.config.values import ConfigMap, Data

# Characters that the encoder of nats-server writes as escapes in a JSON string.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), *map(ord, "<>&"), 0x2028, 0x2029)}
_ESCAPES |= {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_ESCAPES |= dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")  # invalid UTF-8


def config_digest(config: ConfigMap) -> str:
    """Return `sha256:` and the digest of `config` in hex."""
    import hashlib  # imported lazily, in 4 ms: only needed with a configuration file

    return "sha256:" + hashlib.sha256(f"{_json(config)}\n".encode()).hexdigest()


def _json(data: Data) -> str:
    if isinstance(data, ConfigMap):
        pairs = sorted(data.items(), key=lambda pair: pair[0].encode("utf-8", "surrogateescape"))
        return "{" + ",".join(f"{_string(key)}:{_json(entry.value.data)}" for key, entry in pairs) + "}"
    if isinstance(data, list):
        return "[" + ",".join(_json(value.data) for value in data) + "]"
    if isinstance(data, str):
        return _string(data)
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, int):
        return str(data)
    if isinstance(data, float):
        return str(int(data)) if data.is_integer() else repr(data)
    return f'"{data:%Y-%m-%dT%H:%M:%SZ}"'


def _string(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'
