"""Compression of answers."""

from __future__ import annotations

import gzip

import cramjam
import pytest

from pyjs.system_account.encoding import accepted, encoded

BODY = b'{"a": 1}' * 50


def test_without_the_header_nothing_changes() -> None:
    assert encoded(BODY, accepted(b"NATS/1.0\r\nk: v\r\n\r\n")) == (b"", BODY)
    assert encoded(b"", "gzip") == (b"", b"")


@pytest.mark.parametrize("word", ["snappy", "S2", "gzip, snappy"])
def test_snappy_is_the_framing_format(word: str) -> None:
    headers, body = encoded(BODY, accepted(b"NATS/1.0\r\nAccept-Encoding: %b\r\n\r\n" % word.encode()))

    assert headers == b"NATS/1.0\r\nContent-Encoding: snappy\r\n\r\n"
    assert body.startswith(b"\xff\x06\x00\x00sNaPpY")
    assert bytes(cramjam.snappy.decompress(body)) == BODY


def test_gzip_is_equal_each_time() -> None:
    headers, body = encoded(BODY, "GZIP")

    assert headers == b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"
    assert gzip.decompress(body) == BODY
    assert body == encoded(BODY, "GZIP")[1]


def test_an_unknown_encoding_is_answered_with_identity() -> None:
    assert encoded(BODY, "br") == (b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", BODY)
