"""Bytes of one connection: a large frame is awaited as a whole, however it is split."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyjs_spark.errors import ConnectionLost
from pyjs_spark.nats.byte_stream import LARGE, ByteStream
from pyjs_spark.nats.settings import Address

LARGEST = 3_000_000  # more than the kernel buffers for a connection that is not read
Connect = Callable[[Callable[[socket.socket], None]], ByteStream]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a function that handles the other end."""
    open_streams: list[ByteStream] = []
    threads: list[threading.Thread] = []

    def run(serve: Callable[[socket.socket], None]) -> ByteStream:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stream = ByteStream(Address("127.0.0.1", listener.getsockname()[1]), 5.0)
            other, _ = listener.accept()
        open_streams.append(stream)

        def body() -> None:
            with other:
                serve(other)

        threads.append(threading.Thread(target=body))
        threads[-1].start()
        return stream

    yield run
    for stream in open_streams:
        stream.close()
    for thread in threads:
        thread.join(10)


def soon() -> float:
    return time.monotonic() + 10


@pytest.mark.parametrize("size", [1, LARGE - 1, LARGE, LARGE + 1, 300_000, LARGEST])
@pytest.mark.parametrize("piece", [997, 70_000])
def test_a_frame_of_any_size_comes_whole_and_what_follows_it_too(
    connect: Connect, size: int, piece: int
) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    def serve(other: socket.socket) -> None:
        for at in range(0, size, piece):
            other.sendall(data[at : min(at + piece, size)])
        other.sendall(b"+OK\r\n")
        other.recv(1)

    stream = connect(serve)
    assert stream.fill(size, soon())
    assert stream.data[stream.start : stream.start + size] == data[:size]
    stream.start += size
    assert stream.fill(5, soon())
    assert stream.data[stream.start : stream.end] == b"+OK\r\n"
    stream.send(b"!")


def test_a_large_frame_that_stops_half_way_ends_with_the_deadline_and_goes_on_later(connect: Connect) -> None:
    go_on = threading.Event()

    def serve(other: socket.socket) -> None:
        other.sendall(b"x" * 200_000)
        go_on.wait(10)
        other.sendall(b"y" * 100_000)
        other.recv(1)

    stream = connect(serve)
    assert not stream.fill(300_000, time.monotonic() + 0.2)
    go_on.set()
    assert stream.fill(300_000, soon())
    assert stream.data[stream.start : stream.end] == b"x" * 200_000 + b"y" * 100_000
    stream.send(b"!")


def test_a_large_frame_on_a_slow_line_is_not_silence(connect: Connect) -> None:
    pieces = threading.Semaphore(0)

    def serve(other: socket.socket) -> None:
        for _ in range(10):
            pieces.acquire(timeout=10)
            other.sendall(b"x" * 30_000)
        other.recv(1)

    stream = connect(serve)
    for number in range(10):
        pieces.release()
        while stream.received < 30_000 * (number + 1):
            assert stream.fill(300_000, time.monotonic() + 0.05) == (stream.received == 300_000)
    assert stream.fill_whole(300_000, 0.05)
    assert not stream.fill_whole(300_001, 0.05)
    stream.send(b"!")


def test_a_large_frame_whose_sender_goes_away_is_told_at_once(connect: Connect) -> None:
    stream = connect(lambda other: other.sendall(b"x" * 100_000))
    began_s = time.monotonic()
    with pytest.raises(ConnectionLost, match="the server closed the connection"):
        stream.fill(300_000, time.monotonic() + 60)
    assert time.monotonic() - began_s < 30
