"""Compression of answers and traces, if their receiver requests it with `Accept-Encoding`.

The value "snappy" stands for the framing format of Snappy, which the `nats` command requests. If another encoding
than snappy and gzip is requested, the answer is sent uncompressed (`identity`).

Source: probed on nats-server 2.15.1 (tests/conformance/test_system_account.py).
"""

from __future__ import annotations

GZIP_LEVEL = 1  # low, since answers are composed on the event loop


def accepted(headers: bytes) -> str:
    """Return the value of Accept-Encoding in a header block, or "" if there is none."""
    value = headers.partition(b"\r\nAccept-Encoding:")[2].partition(b"\r\n")[0]
    return value.strip(b" \t").decode("utf-8", "replace")


def encoded(body: bytes, accept: str) -> tuple[bytes, bytes]:
    """Return a header block that names the encoding, and the body in the encoding that `accept` requests.

    If `accept` or the body is empty, the header block is empty, and the body is unchanged.
    """
    if not accept or not body:
        return b"", body
    wanted = accept.lower()
    import gzip  # imported lazily: few requests ask for compression

    import cramjam

    if "snappy" in wanted or "s2" in wanted:
        return _block("snappy"), bytes(cramjam.snappy.compress(body))
    if "gzip" in wanted:
        return _block("gzip"), gzip.compress(body, GZIP_LEVEL, mtime=0)
    return _block("identity"), body


def _block(name: str) -> bytes:
    return f"NATS/1.0\r\nContent-Encoding: {name}\r\n\r\n".encode()
