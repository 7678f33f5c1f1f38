"""Damaged WebSocket frames and PROXY headers: equal events however they are split, bounded memory, known errors only.

PYJS_FUZZ_CASES and PYJS_FUZZ_SEED set the number of cases and their seed.
"""

from __future__ import annotations

import os
import random

from tests.support.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    PING,
    PONG,
    RSV1,
    TEXT,
    frame,
    head_of,
    packed,
)

from pyjs.config.options import WebSocketOptions
from pyjs.server.websocket.closing import BadClose, answer_to_close
from pyjs.server.websocket.inflate import InflateFailed, Inflater
from pyjs.server.websocket.upgrade import NotHttp, UpgradeRefused, upgrade
from pyjs.wire import frames
from pyjs.wire.frames import FrameReader
from pyjs.wire.proxy_header import SIGNATURE_V2, BadHeader, read_header

CASES = min(int(os.environ.get("PYJS_FUZZ_CASES", "20000")), 1_000_000)
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
PACKED_MAX = 300
SIZE_MAX = 500  # bytes of an inflated message
FIRSTS = (
    FIN | BINARY,
    FIN | TEXT,
    BINARY,
    CONTINUATION,
    FIN | CONTINUATION,
    FIN | PING,
    FIN | PONG,
    FIN | CLOSE,
)
PAYLOADS = (b"", b"PING\r\n", b"PUB a 3\r\nabc\r\n", b"x" * 130, b"\x03\xe8bye", b"\x03", packed(b"y" * 400))
HEADERS = (
    b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 4222\r\n",
    b"PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 1 2\r\n",
    b"PROXY UNKNOWN\r\n",
    SIGNATURE_V2 + b"\x21\x11\x00\x0c" + bytes(12),
    SIGNATURE_V2 + b"\x21\x21\x00\x30" + bytes(48),
    SIGNATURE_V2 + b"\x20\x00\x00\x04abcd",
    b"CONNECT {}\r\n",
)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with up to three bytes changed, removed or added."""
    changed = bytearray(data)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            changed.insert(at, rng.randrange(256))
        elif at < len(changed):
            changed[at : at + 1] = b"" if kind == 1 else bytes((rng.randrange(256),))
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    """Return `data` in random pieces."""
    ends = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(0, 5)))
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def events(reads: list[bytes], masked: bool, deflates: bool) -> list[tuple[int, bytes]]:
    """Return the events; neighbouring PLAIN ones are joined."""
    reader = FrameReader(masked, deflates, PACKED_MAX)
    found: list[tuple[int, bytes]] = []
    for read in reads:
        reader.begin(read)
        while (event := reader.next()) != frames.NEED:
            if event in (frames.FAULT, frames.TOO_LARGE):
                return [*found, (event, reader.fault.encode())]
            assert len(reader.payload) <= max(PACKED_MAX, len(read), 125)
            if event == frames.PLAIN and found and found[-1][0] == frames.PLAIN:
                found[-1] = (event, found[-1][1] + reader.payload)
            else:
                found.append((event, reader.payload))
    return found


def inflate(data: bytes) -> None:
    """Inflate a message, and check that it does not exceed its limit."""
    inflater = Inflater()
    inflater.begin(data, SIZE_MAX)
    size = 0
    try:
        while inflater.busy:
            size += len(inflater.next())
    except InflateFailed:
        assert not inflater.busy
    assert size <= SIZE_MAX


def test_damaged_frames_have_the_same_events_however_they_are_cut() -> None:
    for number in range(CASES):
        rng = random.Random(SEED * 1_000_003 + number)
        masked, deflates = rng.random() < 0.9, rng.random() < 0.5
        sent = b"".join(
            frame(
                rng.choice(PAYLOADS),
                rng.choice(FIRSTS) | (RSV1 if rng.random() < 0.2 else 0),
                masked or rng.random() < 0.5,
            )
            for _ in range(rng.randint(1, 6))
        )
        data = damaged(rng, sent)
        whole = events([data], masked, deflates)
        assert events(cut(rng, data), masked, deflates) == whole, number
        for event, payload in whole:
            if event == frames.PACKED:
                inflate(payload)
            elif event == frames.CLOSE:
                try:
                    assert len(answer_to_close(payload)) <= 127
                except BadClose:
                    pass


def test_damaged_proxy_headers_are_read_refused_or_incomplete() -> None:
    for number in range(CASES):
        rng = random.Random(SEED * 1_000_033 + number)
        data = damaged(rng, rng.choice(HEADERS)) + b"PING\r\n" * rng.randrange(3)
        try:
            header = read_header(data)
        except BadHeader:
            continue
        assert header is None or 0 <= header.size <= len(data), number
        if header is not None and header.size:
            assert all(_or_none(data[:end]) is None for end in range(header.size)), number


def _or_none(data: bytes) -> object:
    """Return the header at the start of `data`, or None if `data` ends within it."""
    return read_header(data)


def test_damaged_requests_are_accepted_or_refused() -> None:
    options = WebSocketOptions(port=1, no_tls=True, same_origin=True, compression=True, user_cookie="u")
    for number in range(CASES // 10):
        rng = random.Random(SEED * 1_000_037 + number)
        head = head_of(
            Origin=rng.choice(("http://localhost", "http://[", "null", "http://a:99999")),
            Cookie=rng.choice(("u=a", 'u="', "=;=", ";;;")),
            Sec_WebSocket_Extensions=rng.choice(("permessage-deflate", "permessage-deflate; x", ";;", '"')),
        )
        data = damaged(rng, head[:-4]).replace(b"\r\n\r\n", b"\r\n") + b"\r\n\r\n"
        try:
            found = upgrade(data, options, encrypted=False)
        except (NotHttp, UpgradeRefused):
            continue
        assert found.answer.startswith(b"HTTP/1.1 101 "), number
