"""Frames that the server writes, decoded with another library."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from types import ModuleType

import pytest
from isal import isal_zlib
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from pyjs.server.websocket import outgoing
from pyjs.server.websocket.outgoing import COMPRESSED_MAX, KEPT, Packer, Terms, frames_of


def read_back(data: bytes, compressed: bool) -> tuple[bytes, list[tuple[Opcode, bool, int]]]:
    """Return the joined payloads of the messages; and opcode, FIN bit and size of each frame."""
    protocol = Protocol(CLIENT, state=OPEN, max_size=None)
    if compressed:
        protocol.extensions = [PerMessageDeflate(True, True, 15, 15)]
    protocol.receive_data(data)
    found = [event for event in protocol.events_received() if hasattr(event, "opcode")]
    assert protocol.parser_exc is None
    return (
        b"".join(bytes(each.data) for each in found),
        [(each.opcode, each.fin, len(each.data)) for each in found],
    )


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 300_000])
def test_a_write_is_one_message(size: int) -> None:
    data = b"".join(frames_of([b"x" * (size - 1), b"y"], Terms()))
    assert read_back(data, False) == (b"x" * (size - 1) + b"y", [(Opcode.BINARY, True, size)])


def test_a_browser_gets_messages_of_4096_bytes() -> None:
    text, found = read_back(b"".join(frames_of([b"x" * 10_000], Terms(frame_max=4096))), False)
    assert text == b"x" * 10_000
    assert [size for _, _, size in found] == [4096, 4096, 1808]
    assert all(end for _, end, _ in found)


@pytest.mark.parametrize("packer", [isal_zlib, zlib], ids=["ISA-L", "zlib"])
@pytest.mark.parametrize("bits", [9, 12, 15])
def test_a_message_is_compressed(bits: int, packer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "packer", packer)
    payload = b"MSG orders.new 1 5\r\nhello\r\n" * 100
    frames = frames_of([payload[:7], payload[7:]], Terms(window_bits=bits))
    assert sum(map(len, frames)) < len(payload) / 5
    assert read_back(b"".join(frames), True)[0] == payload


@pytest.mark.parametrize("whole", [False, True])
def test_a_browser_gets_compressed_fragments_unless_it_is_safari(whole: bool) -> None:
    payload = random.Random(1).randbytes(20_000)
    frames = frames_of([payload], Terms(window_bits=15, frame_max=4096, whole_compressed=whole))
    heads = frames[::2]
    assert len(heads) == 1 if whole else len(heads) > 4
    assert [head[0] & 0x80 != 0 for head in heads] == [False] * (len(heads) - 1) + [True]
    assert [head[0] & 0x40 != 0 for head in heads] == [True] + [False] * (len(heads) - 1)
    packed = b"".join(frames[1::2]) + b"\x00\x00\xff\xff"
    assert zlib.decompressobj(-15).decompress(packed) == payload


@pytest.mark.parametrize("size", [64, COMPRESSED_MAX + 1])
def test_small_and_long_messages_are_not_compressed(size: int) -> None:
    frames = frames_of([b"x" * size], Terms(window_bits=15))
    assert frames[0][0] == 0x82
    assert frames[1] == b"x" * size


def kept_by(monkeypatch: pytest.MonkeyPatch) -> tuple[Packer, list[bytes], list[Callable[[], None]]]:
    """Return a packer, the list of its compressed payloads, and the list of its delayed calls."""
    seen: list[bytes] = []
    later: list[Callable[[], None]] = []
    deflate = outgoing.deflated
    monkeypatch.setattr(outgoing, "deflated", lambda part, bits: seen.append(part) or deflate(part, bits))
    return Packer(lambda _, do: later.append(do)), seen, later


def test_a_large_body_for_many_clients_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packer, seen, _ = kept_by(monkeypatch)
    body = random.Random(1).randbytes(100) * 3000
    for sid in range(100):
        head = b"MSG a %d 300000\r\n" % sid
        frames = packer.frames_of([head, body, b"\r\n"], Terms(window_bits=15))
        text, found = read_back(b"".join(frames), True)
        assert text == head + body + b"\r\n"
        assert len(found) == 1
    assert seen == [body]


def test_equal_output_of_many_clients_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packer, seen, _ = kept_by(monkeypatch)
    for _ in range(100):
        packer.frames_of([b"MSG a 1 2000\r\n" + bytes(2000), b"\r\n"], Terms(window_bits=15))
    assert len(seen) == 1


def test_what_was_compressed_is_kept_for_a_moment_and_for_the_same_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packer, seen, later = kept_by(monkeypatch)
    for bits in (15, 9, 15, 9):
        packer.frames_of([bytes(2000)], Terms(window_bits=bits))
    assert len(seen) == 2
    (forget,) = later
    forget()
    packer.frames_of([bytes(2000)], Terms(window_bits=15))
    assert len(seen) == 3


def test_few_parts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    packer, seen, _ = kept_by(monkeypatch)
    for number in (*range(KEPT + 1), 0):
        packer.frames_of([b"%d" % number * 2000], Terms(window_bits=15))
    assert len(seen) == KEPT + 2


@pytest.mark.parametrize(
    "sizes",
    [(20_000,), (10, 20_000), (20_000, 10), (300, 20_000, 20_000, 2), (30_000, 1, 30_000), (60, 5, 1)],
)
@pytest.mark.parametrize("bits", [9, 15])
def test_parts_make_one_message(sizes: tuple[int, ...], bits: int) -> None:
    rng = random.Random(2)
    pieces = [rng.randbytes(size // 4 + 1) * 4 for size in sizes]
    frames = Packer(lambda *_: None).frames_of(pieces, Terms(window_bits=bits))
    text, found = read_back(b"".join(frames), True)
    assert text == b"".join(pieces)
    assert len(found) == 1


@pytest.mark.parametrize("bits", range(9, 16))
def test_no_match_reaches_further_back_than_the_client_keeps(bits: int) -> None:
    rng = random.Random(bits)
    lines = [rng.randbytes(100) for _ in range(300)]
    payload = b"".join(rng.choice(lines) for _ in range(3000))
    # when
    packed = frames_of([payload], Terms(window_bits=bits))[1]
    # then
    assert zlib.decompressobj(-bits).decompress(packed + b"\x00\x00\xff\xff") == payload
