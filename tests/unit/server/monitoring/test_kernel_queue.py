import socket
import time

from pyjs.server.monitoring.kernel_queue import unacknowledged


def test_bytes_that_the_peer_has_no_room_for_are_unacknowledged_until_it_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel makes it its smallest size
        peer.connect(listener.getsockname())
        with listener.accept()[0] as sock:
            assert unacknowledged(sock) == 0
            sock.setblocking(False)
            sent = sock.send(bytes(1 << 20))
            full = unacknowledged(sock)
            assert 0 < full <= sent

            received = 0
            while received < sent:
                received += len(peer.recv(1 << 20))
            deadline = time.monotonic() + 10
            while unacknowledged(sock) and time.monotonic() < deadline:
                time.sleep(0.001)  # no event signals an acknowledgement
            assert unacknowledged(sock) == 0


def test_a_socket_without_such_a_queue_has_no_unacknowledged_bytes() -> None:
    closed = socket.socket()
    closed.close()
    with socket.socket() as unconnected:
        assert [unacknowledged(each) for each in (None, closed, unconnected)] == [0, 0, 0]
    with open("/dev/null") as file:
        assert unacknowledged(file) == 0
