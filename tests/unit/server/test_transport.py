import socket
import threading
from collections.abc import Iterator

import pytest

from pyjs.server.loop import EventLoop
from pyjs.server.transport import Transport

HIGH, LOW = 100_000, 20_000


class Noting(Transport):
    """Notes what it is told."""

    def __init__(self, loop: EventLoop, sock: socket.socket) -> None:
        super().__init__(loop, sock, HIGH, LOW)
        self.loop = loop
        self.told: list[str] = []
        self.data = b""
        self.start()

    def received(self, data: bytes) -> None:
        self.data += data
        self.loop.stop()

    def ended(self) -> None:
        self.told.append("ended")
        self.loop.stop()

    def lost(self) -> None:
        self.told.append("lost")
        self.loop.stop()

    def filled(self) -> None:
        self.told.append("filled")

    def drained(self) -> None:
        self.told.append("drained")


class Site:
    """A transport and its peer."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(10)
        ours.setblocking(False)
        self.transport = Noting(self.loop, ours)

    def iterate(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.call_soon(self.loop.stop)
            self.loop.run()

    def fill(self) -> int:
        """Write until the kernel takes no more and HIGH is passed; return the bytes written."""
        written = 0
        while self.transport.pending_size() <= HIGH:
            self.transport.write(b"x" * 50_000)
            written += 50_000
        return written

    def read_in_thread(self, size: int) -> threading.Thread:
        """Read `size` bytes at the other end, or until the end."""

        def read() -> None:
            left = size
            while left and (data := self.peer.recv(left)):
                left -= len(data)

        thread = threading.Thread(target=read)
        thread.start()
        return thread


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.transport.abort()
    made.iterate()
    made.peer.close()
    made.loop.close()


def test_what_the_peer_sends_is_received(site: Site) -> None:
    site.peer.send(b"hello")

    site.loop.run()

    assert site.transport.data == b"hello"


def test_a_write_leaves_at_once(site: Site) -> None:
    site.transport.write(b"hello")

    assert site.peer.recv(10) == b"hello"
    assert site.transport.pending_size() == 0


def test_what_the_kernel_does_not_take_is_sent_later_in_order(site: Site) -> None:
    chunks = [bytes([at % 251]) * 10_007 for at in range(100)]
    for chunk in chunks:
        site.transport.write(chunk)
    assert site.transport.pending_size() > 0

    received = b""
    while len(received) < sum(map(len, chunks)):
        received += site.peer.recv(1 << 20)
        site.iterate()

    assert received == b"".join(chunks)
    assert site.transport.pending_size() == 0


def test_pieces_leave_in_order_however_many_there_are(site: Site) -> None:
    pieces = [bytes([at % 251]) * (at * 40) for at in range(200)]
    for _ in range(3):
        site.transport.write_all(pieces)
        site.transport.write(b"between")
    assert site.transport.pending_size() > 0

    received = b""
    wanted = (b"".join(pieces) + b"between") * 3
    while len(received) < len(wanted):
        received += site.peer.recv(1 << 20)
        site.iterate()

    assert received == wanted
    assert site.transport.pending_size() == 0
    assert site.transport.told == ["filled", "drained"]


def test_pieces_that_the_kernel_takes_are_not_kept(site: Site) -> None:
    site.transport.write_all([b"hel", b"lo"])

    assert site.peer.recv(10) == b"hello"
    assert site.transport.pending_size() == 0


def test_pieces_for_a_peer_that_is_gone_close_the_connection(site: Site) -> None:
    site.peer.close()
    while not site.transport.closing:
        site.transport.write_all([b"hel", b"lo"])
    site.transport.write_all([b"too late"])

    site.iterate()

    assert site.transport.told == ["lost"]


def test_a_slow_peer_is_told_once_and_so_is_its_recovery(site: Site) -> None:
    size = site.fill()
    site.transport.write(b"more")
    assert site.transport.told == ["filled"]

    thread = site.read_in_thread(size + 4)
    while site.transport.pending_size():
        site.iterate()

    thread.join()
    assert site.transport.told == ["filled", "drained"]


def test_closing_sends_what_was_written(site: Site) -> None:
    size = site.fill()
    site.transport.close()
    site.transport.close()
    site.transport.write(b"too late")
    thread = site.read_in_thread(size)

    site.loop.run()

    thread.join()
    assert site.peer.recv(10) == b""
    assert site.transport.told == ["filled", "lost"]


def test_aborting_drops_what_was_written(site: Site) -> None:
    site.fill()

    site.transport.abort()
    site.transport.abort()
    assert site.transport.told == ["filled"]  # nothing is told inside the call
    site.loop.run()

    assert site.transport.pending_size() == 0
    assert site.transport.told == ["filled", "lost"]


def test_an_abort_cuts_a_close_short(site: Site) -> None:
    site.fill()
    site.transport.close()

    site.transport.abort()
    site.loop.run()

    assert site.transport.told == ["filled", "lost"]


def test_the_end_of_input_leaves_the_way_out_open(site: Site) -> None:
    site.peer.shutdown(socket.SHUT_WR)
    site.loop.run()

    site.transport.write(b"answer")

    assert site.transport.told == ["ended"]
    assert site.peer.recv(10) == b"answer"


def test_a_write_to_a_peer_that_is_gone_loses_the_connection(site: Site) -> None:
    site.peer.close()

    site.transport.write(b"x")
    site.transport.write(b"x")
    site.loop.run()

    assert site.transport.told[-1] == "lost"
    assert site.transport.told.count("lost") == 1


def test_a_reset_while_reading_loses_the_connection() -> None:
    loop = EventLoop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    accepted.setblocking(False)
    transport = Noting(loop, accepted)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()

    loop.run()

    assert transport.told == ["lost"]
    loop.close()


def test_a_paused_transport_takes_no_input(site: Site) -> None:
    site.transport.pause_reading()
    site.peer.send(b"hello")
    site.iterate(10)
    assert site.transport.data == b""

    site.transport.resume_reading()
    site.loop.run()

    assert site.transport.data == b"hello"


def test_pausing_and_resuming_a_closed_transport_does_nothing(site: Site) -> None:
    site.transport.close()
    site.transport.pause_reading()
    site.transport.resume_reading()
    site.loop.run()

    site.transport.resume_reading()
    site.transport.pause_reading()
    site.transport.abort()

    assert site.transport.told == ["lost"]
