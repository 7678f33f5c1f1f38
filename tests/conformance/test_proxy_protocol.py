"""PROXY headers of version 1 and 2 on the client port: addresses, refusals and their texts."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import WAIT_S, Both, WebSocketServer, both_servers
from tests.support.certificates import COMMON, LOCAL, Authority, subject

pytestmark = needs_peer
CONFIG = "debug: true\nproxy_protocol: true"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOGIN = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


def v2(family: int, body: bytes, command: int = 0x21, size: int = -1) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body) if size < 0 else size) + body


IPV4 = bytes((192, 0, 2, 1, 192, 0, 2, 2)) + struct.pack(">HH", 12345, 4222)
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + struct.pack(">HH", 12345, 4222)
MAPPED = socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.9") * 2 + struct.pack(">HH", 12345, 4222)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("proxy")) as servers:
        yield servers


class Line:
    """A client of the port."""

    def __init__(self, server: WebSocketServer) -> None:
        self.sock = socket.create_connection(("127.0.0.1", server.port), WAIT_S)
        self.data = b""

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.data:
            piece = self.sock.recv(65536)
            if not piece:
                raise ConnectionError(self.data)
            self.data += piece
        head, _, self.data = self.data.partition(mark)
        return head

    def rest(self) -> bytes:
        try:
            while piece := self.sock.recv(65536):
                self.data += piece
        except ConnectionError:
            pass
        return self.data

    def close(self) -> None:
        self.sock.close()


def shown(server: WebSocketServer, data: bytes, pieces: int = 1) -> object:
    """Return the client's address in both INFOs and in /connz, or `own` if it is the address of the socket."""
    with closing(Line(server)) as line:
        first = json.loads(line.read_until(b"\r\n").removeprefix(b"INFO "))
        step = -(-len(data) // pieces)
        for at in range(0, len(data), step):
            line.sock.sendall(data[at : at + step])
        line.read_until(b"PONG\r\n")
        second = json.loads(line.read_until(b"\r\n").removeprefix(b"INFO "))
        found = server.page("/connz")["connections"][0]
        port = "own" if found["port"] == line.sock.getsockname()[1] else found["port"]
        return first.get("client_ip"), second.get("client_ip"), found["ip"], port


HEADERS = {
    "v1 TCP4": b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 4222\r\n",
    "v1 TCP6": b"PROXY TCP6 2001:db8::1 2001:db8::2 12345 4222\r\n",
    "v1 TCP6 with a mapped address": b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 12345 4222\r\n",
    "v1 UNKNOWN": b"PROXY UNKNOWN\r\n",
    "v1 UNKNOWN with addresses": b"PROXY UNKNOWN ffff:f...f ffff::1 65535 65535\r\n",
    "v1 with more blanks": b"PROXY TCP4   192.0.2.1  192.0.2.2 12345 4222\r\n",
    "v2 IPv4": v2(0x11, IPV4),
    "v2 IPv6": v2(0x21, IPV6),
    "v2 IPv6 with a mapped address": v2(0x21, MAPPED),
    "v2 IPv4 with more data": v2(0x11, IPV4 + b"\x04\x00\x01x"),
    "v2 LOCAL": v2(0x00, b"", 0x20),
    "v2 LOCAL with data": v2(0x11, IPV4, 0x20),
    "v2 without family": v2(0x01, b""),
    "v2 without family, with data": v2(0x01, b"whatever"),
    "none": b"",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_the_client_has_the_address_of_the_header(both: Both, header: bytes) -> None:
    both.see(lambda server: shown(server, header + LOGIN), CONFIG)


@pytest.mark.parametrize("header", [HEADERS["v1 TCP4"], HEADERS["v2 IPv6"], HEADERS["v2 LOCAL with data"]])
def test_a_header_may_come_in_pieces(both: Both, header: bytes) -> None:
    both.see(lambda server: shown(server, header + LOGIN, pieces=1000), CONFIG)


REFUSED = {
    "v1 of an unknown protocol": b"PROXY UDP4 192.0.2.1 192.0.2.2 12345 4222\r\n",
    "v1 with too few words": b"PROXY TCP4 192.0.2.1 192.0.2.2 12345\r\n",
    "v1 with too many words": b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 4222 x\r\n",
    "v1 without words": b"PROXY \r\n",
    "v1 with a wrong address": b"PROXY TCP4 192.0.2.256 192.0.2.2 12345 4222\r\n",
    "v1 with zeros before": b"PROXY TCP4 192.0.2.01 192.0.2.2 12345 4222\r\n",
    "v1 with a zone": b"PROXY TCP6 fe80::1%eth0 fe80::2 12345 4222\r\n",
    "v1 with a large source port": b"PROXY TCP4 192.0.2.1 192.0.2.2 70000 4222\r\n",
    "v1 with a huge port": b"PROXY TCP4 192.0.2.1 192.0.2.2 99999999999999999999999 4222\r\n",
    "v1 with a wrong port": b"PROXY TCP4 192.0.2.1 192.0.2.2 x 4222\r\n",
    "v1 with a signed port": b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 4222\r\n",
    "v1 with a wrong destination port": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 -1\r\n",
    "v1 TCP4 with IPv6": b"PROXY TCP4 2001:db8::1 2001:db8::2 12345 4222\r\n",
    "v1 TCP6 with IPv4": b"PROXY TCP6 192.0.2.1 192.0.2.2 12345 4222\r\n",
    "v1 that is too long": b"PROXY TCP4 " + b"1" * 200 + b"\r\n",
    "v1 of the longest size and one": b"PROXY UNKNOWN" + b" " * 93 + b"\r\n",
    "v2 with a wrong signature": b"\r\n\r\n\x00\r\nQUIX\n" + b"\x21\x11\x00\x0c" + IPV4,
    "v2 of another version": v2(0x11, IPV4, 0x11),
    "v2 with another command": v2(0x11, IPV4, 0x22),
    "v2 of datagrams": v2(0x12, IPV4),
    "v2 of Unix sockets": v2(0x31, bytes(216)),
    "v2 IPv4 that is short": v2(0x11, IPV4[:8]),
    "v2 IPv6 that is short": v2(0x21, IPV4),
}


@pytest.mark.parametrize("header", REFUSED.values(), ids=REFUSED)
def test_a_header_is_refused(both: Both, header: bytes) -> None:
    before = {server: len(server.log_lines("Error reading PROXY")) for server in both.servers(CONFIG)}

    def look(server: WebSocketServer) -> object:
        with closing(Line(server)) as line:
            line.read_until(b"\r\n")
            line.sock.sendall(header)
            rest = line.rest()
        lines = server.log_lines("Error reading PROXY")[before[server] :]
        return rest, lines, server.page("/connz?state=closed&sort=stop")["connections"][0]["reason"]

    assert both.see(look, CONFIG)[1]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"PRO",
        b"PROXY TCP4 1",
        SIGNATURE[:6],
        SIGNATURE[:8],
        SIGNATURE,
        v2(0x11, b"", size=12),
        v2(0x11, b"ab", size=12),
        v2(0x21, b"ab", size=36),
        v2(0x11, b"ab", command=0x20, size=12),
        v2(0x01, b"ab", size=12),
    ],
)
def test_a_header_that_ends_early_is_refused(both: Both, header: bytes) -> None:
    before = {server: len(server.log_lines("Error reading PROXY")) for server in both.servers(CONFIG)}

    def look(server: WebSocketServer) -> object:
        with closing(Line(server)) as line:
            line.read_until(b"\r\n")
            line.sock.sendall(header)
            line.sock.shutdown(socket.SHUT_WR)
            rest = line.rest()
        return rest, server.log_lines("Error reading PROXY")[before[server] :]

    both.see(look, CONFIG)


def test_a_header_that_stops_is_closed_in_time(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(Line(server)) as line:
            line.read_until(b"\r\n")
            line.sock.sendall(b"PROXY TCP4")
            rest = line.rest()
        found = server.log_lines("failed to read v1 line: read tcp")
        return rest, [re.sub(r"ADDRESS->ADDRESS", "", each) for each in found]

    assert both.see(look, CONFIG)[1]


def test_the_start_is_logged(both: Both) -> None:
    assert both.see(lambda server: server.log_lines("PROXY protocol enabled"), CONFIG)


def test_log_lines_have_the_address_of_the_header(both: Both) -> None:
    """nats-server logs the proxy's address instead, see docs/compatibility.md."""
    server = both.servers(CONFIG)[1]
    shown(server, b"PROXY TCP4 203.0.113.5 192.0.2.2 777 4222\r\n" + LOGIN)
    assert server.logged("203.0.113.5:777 - cid:", WAIT_S)


def test_tls_comes_after_the_header(both: Both, tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    folder = authority.ca_file.parent
    config = CONFIG + f'\ntls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server-key.pem" }}'
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def look(server: WebSocketServer) -> object:
        with closing(Line(server)) as line:
            line.read_until(b"\r\n")
            line.sock.sendall(HEADERS["v1 TCP4"])
            line.sock = context.wrap_socket(line.sock, server_hostname="localhost")
            line.sock.sendall(LOGIN)
            line.read_until(b"PONG\r\n")
            found = server.page("/connz")["connections"][0]
            return found["ip"], found["port"], found["tls_version"]

    both.see(look, config)
