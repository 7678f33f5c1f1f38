"""The reader of WebSocket frames, with frames of another library and with wrong ones."""

from __future__ import annotations

import random
import sys

import pytest
from tests.support.websocket import BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, RSV1, TEXT, frame
from websockets.frames import Frame, Opcode

from pyjs.wire import frames
from pyjs.wire.frames import FrameReader

Event = tuple[int, bytes]


def reader(masked: bool = True, deflates: bool = True, packed_max: int = 1000) -> FrameReader:
    return FrameReader(masked, deflates, packed_max)


def events(taker: FrameReader, *reads: bytes) -> list[Event]:
    """Return the events of all reads; neighbouring PLAIN events are joined."""
    found: list[Event] = []
    for read in reads:
        taker.begin(read)
        while (event := taker.next()) != frames.NEED:
            if event in (frames.FAULT, frames.TOO_LARGE):
                return [*found, (event, taker.fault.encode())]
            if event == frames.PLAIN and found and found[-1][0] == frames.PLAIN:
                found[-1] = (frames.PLAIN, found[-1][1] + taker.payload)
            else:
                found.append((event, taker.payload))
    return found


def test_consecutive_frames_are_one_event() -> None:
    taker = reader()
    taker.begin(frame(b"PUB a 1\r\n") + frame(b"x\r\n", FIN | TEXT) + frame(b"PING\r\n"))
    assert taker.next() == frames.PLAIN
    assert taker.payload == b"PUB a 1\r\nx\r\nPING\r\n"
    assert taker.next() == frames.NEED


def test_a_control_frame_comes_after_the_bytes_before_it() -> None:
    data = frame(b"one", BINARY) + frame(b"hey", FIN | PING) + frame(b"two", FIN | CONTINUATION)
    assert events(reader(), data) == [
        (frames.PLAIN, b"one"),
        (frames.PING, b"hey"),
        (frames.PLAIN, b"two"),
    ]


def test_a_fault_comes_after_the_bytes_before_it() -> None:
    assert events(reader(), frame(b"one") + frame(b"", FIN | 5)) == [
        (frames.PLAIN, b"one"),
        (frames.FAULT, b"unknown opcode 5"),
    ]


def test_after_a_fault_nothing_is_read() -> None:
    taker = reader()
    events(taker, frame(b"", FIN | 5))
    taker.begin(frame(b"PING\r\n"))
    assert taker.next() == frames.FAULT


def test_a_compressed_message_is_one_event() -> None:
    data = frame(b"abc", RSV1 | BINARY) + frame(b"", FIN | PONG) + frame(b"def", FIN | CONTINUATION)
    assert events(reader(), data) == [(frames.PONG, b""), (frames.PACKED, b"abcdef")]


def test_a_compressed_message_may_not_be_too_large() -> None:
    assert events(reader(packed_max=5), frame(b"abcdef", FIN | RSV1 | BINARY))[0][0] == frames.TOO_LARGE
    assert events(reader(packed_max=6), frame(b"abcdef", FIN | RSV1 | BINARY)) == [(frames.PACKED, b"abcdef")]


def test_a_part_of_a_frame_is_passed_on() -> None:
    taker = reader()
    data = frame(b"x" * 500)
    assert events(taker, data[:100]) == [(frames.PLAIN, b"x" * 92)]
    assert events(taker, data[100:]) == [(frames.PLAIN, b"x" * 408)]


def test_without_masks_the_bytes_are_as_they_are() -> None:
    assert events(reader(masked=False), frame(b"hello", masked=False)) == [(frames.PLAIN, b"hello")]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (frame(b"x", masked=False), "mask bit missing"),
        (frame(b"x", FIN | 0x20 | BINARY), "RSV2 and RSV3 must be clear"),
        (frame(b"x", FIN | 0x10 | BINARY), "RSV2 and RSV3 must be clear"),
        (frame(b"x", PING), "control frame does not have final bit set"),
        (frame(b"x", FIN | RSV1 | CLOSE), "control frame must not be compressed"),
        (frame(b"x" * 126, FIN | PING), "control frame length bigger than maximum allowed of 125 bytes"),
        (frame(b"x", FIN | CONTINUATION), "invalid continuation frame"),
        (frame(b"x", BINARY) + frame(b"y", FIN | RSV1), "invalid continuation frame"),
        (
            frame(b"x", BINARY) + frame(b"y", BINARY),
            "new message started before final frame for previous message was received",
        ),
        (b"\x82\xff\x80" + bytes(11), "invalid 64-bit payload length"),
    ],
)
def test_a_wrong_frame_is_refused(data: bytes, fault: str) -> None:
    assert events(reader(), data)[-1] == (frames.FAULT, fault.encode())


def test_compression_needs_an_agreement() -> None:
    fault = b"compressed frame received without negotiated permessage-deflate"
    assert events(reader(deflates=False), frame(b"x", FIN | RSV1 | BINARY)) == [(frames.FAULT, fault)]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 100_000])
def test_frames_of_another_library_are_read(size: int) -> None:
    payload = random.Random(size).randbytes(size)
    data = Frame(Opcode.BINARY, payload).serialize(mask=True)
    assert events(reader(), data) == ([(frames.PLAIN, payload)] if size else [])


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 13, 64])
def test_the_same_bytes_give_the_same_events_however_they_are_split(step: int) -> None:
    data = b"".join(
        (
            frame(b"SUB a 1\r\n"),
            frame(b"ping", FIN | PING),
            frame(b"PU", BINARY),
            frame(b"B a 3\r\n", CONTINUATION),
            frame(b"", FIN | PONG),
            frame(b"abc\r\n" + b"z" * 300, FIN | CONTINUATION),
            frame(b"packed", RSV1 | BINARY),
            frame(b"more", FIN | CONTINUATION),
            frame(b"\x03\xe8bye", FIN | CLOSE),
        )
    )
    reads = [data[at : at + step] for at in range(0, len(data), step)]
    assert events(reader(), *reads) == events(reader(), data)


def test_a_read_is_released_when_it_is_used_up() -> None:
    taker, read = reader(), frame(b"x" * 5000)
    before = sys.getrefcount(read)
    taker.begin(read)
    assert taker.next() == frames.PLAIN
    assert taker.next() == frames.NEED
    assert sys.getrefcount(read) == before
    assert taker.payload == b""


def test_the_limit_of_compressed_messages_may_change_between_reads() -> None:
    taker = reader(packed_max=10)
    taker.begin(frame(b"x" * 8, RSV1 | BINARY))
    assert taker.next() == frames.NEED
    taker.packed_max = 20
    assert events(taker, frame(b"y" * 8, FIN | CONTINUATION)) == [(frames.PACKED, b"x" * 8 + b"y" * 8)]
