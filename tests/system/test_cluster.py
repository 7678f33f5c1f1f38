"""A cluster of real processes: kill -9, SIGSTOP, TERM, reload, foreign connections to the route port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient, ThreeServers, three
from tests.conformance.harness.process import ServerProcess, free_port, our_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject

LOGIN = "authorization { user: route, password: secret }"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path) as running:
        yield running


def test_messages_flow_again_after_kill_9_and_a_new_start(servers: ThreeServers) -> None:
    receiver = servers.client("a")
    receiver.send(b"SUB x 1\r\n")
    for round_number in range(3):
        servers.server("b").kill()
        servers.wait_page("a", "/varz", lambda page: page["remotes"] == 1)
        servers.server("b").start()
        servers.wait_page("a", "/varz", lambda page: page["remotes"] == 2)
        servers.wait_page("c", "/varz", lambda page: page["remotes"] == 2)
        sender = servers.client("b")
        servers.settle(receiver, sender)
        sender.send(b"PUB x 1\r\n%d\r\n" % round_number)
        found = servers.seen(sender, {"r": receiver})["r"]
        assert [frame[4] for frame in found if frame[0] == b"x"] == [b"%d" % round_number]


def test_a_stopped_server_is_given_up_and_taken_back(servers: ThreeServers) -> None:
    servers.server("c").signal("STOP")
    try:
        assert servers.server("a").logged("no heartbeat for", WAIT_S)
        assert servers.server("a").logged("the route is closed", WAIT_S)
        servers.wait_page("a", "/varz", lambda page: page["remotes"] == 1)
    finally:
        servers.server("c").signal("CONT")
    for name in NAMES:
        servers.wait_page(name, "/varz", lambda page: page["remotes"] == 2)


def test_clients_learn_of_a_server_that_stops(servers: ThreeServers) -> None:
    client = servers.client("a")
    client.wait_info(lambda info: len(info.get("connect_urls", [])) == 3)
    client.infos.clear()
    servers.server("b").stop()
    client.wait_info(lambda info: len(info.get("connect_urls", [])) == 2)


def test_a_route_to_a_host_that_is_no_name_is_reported(tmp_path: Path) -> None:
    config = f'cluster {{ name: T, listen: "127.0.0.1:{free_port()}", routes: ["nats://a..b:1"] }}'
    server = ServerProcess(our_command(), config, tmp_path, False)
    server.start()
    try:
        assert server.logged("(attempt 1): dial tcp a..b:1: lookup a..b: no such host", WAIT_S)
        assert "Traceback" not in (tmp_path / "log").read_text()
    finally:
        server.kill()


@pytest.mark.parametrize("word", ["secret", "wrong"])
def test_only_the_right_password_opens_a_route(tmp_path: Path, word: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    port, other = free_port(), free_port()
    first = f'cluster {{ name: T, listen: "127.0.0.1:{port}", {LOGIN} }}'
    second = (
        f'cluster {{ name: T, listen: "127.0.0.1:{other}", {LOGIN}\n'
        f'routes: ["nats://route:{word}@127.0.0.1:{port}"] }}'
    )
    x = ServerProcess(our_command(), first, tmp_path / "x", True)
    y = ServerProcess(our_command(), second, tmp_path / "y", True)
    try:
        x.start()
        y.start()
        if word == "secret":
            assert x.logged("is open", WAIT_S)
        else:
            assert x.logged("Authorization Violation: the route has another user or password", WAIT_S)
            assert y.logged("the other side refuses: 'Authorization Violation'", WAIT_S)
            assert not x.logged("is open", 0)
    finally:
        x.kill()
        y.kill()


def test_a_nats_server_that_knocks_is_told_what_it_met(tmp_path: Path) -> None:
    with (
        three(our_command(), tmp_path) as running,
        socket.create_connection(("127.0.0.1", running.routes[0]), WAIT_S) as line,
    ):
        line.sendall(b'CONNECT {"name":"go-1","cluster":"TRIO","lnoc":true}\r\n')
        text = b""
        while piece := line.recv(65536):
            text += piece
        assert b"is a nats-server, whose route protocol pyjs-server does not speak" in text
        assert running.server("a").logged("'go-1' is a nats-server", WAIT_S)


def test_a_reload_adds_a_route(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    ports = free_port(), free_port()
    x = ServerProcess(
        our_command(), f'cluster {{ name: T, listen: "127.0.0.1:{ports[0]}" }}', tmp_path / "x", True
    )
    y = ServerProcess(
        our_command(), f'cluster {{ name: T, listen: "127.0.0.1:{ports[1]}" }}', tmp_path / "y", True
    )
    try:
        x.start()
        y.start()
        config = tmp_path / "x" / "server.conf"
        config.write_text(
            config.read_text().replace("name: T,", f"name: T, routes: [nats://127.0.0.1:{ports[1]}],")
        )
        x.signal("HUP")
        assert x.logged("Reloaded: cluster.routes", WAIT_S)
        assert y.logged('Route to the server "conformance" is open', WAIT_S)
        here, there = NodeClient(x.port), NodeClient(y.port)
        there.send(b"SUB r 1\r\n")
        there.fence()
        while not there.frames:
            here.send(b"PUB r 0\r\n\r\n")
            here.fence()
            there.fence()
        config.write_text(config.read_text().replace("name: T,", "name: U,"))
        x.signal("HUP")
        assert x.logged("cluster.name", WAIT_S)
    finally:
        x.kill()
        y.kill()


# -- TLS -------------------------------------------------------------------------------------------------------


def tls_block(folder: Path, name: str, authority: Authority, trusted: Authority) -> str:
    issued = authority.issue(name, subject((name, COMMON)), *LOCAL)
    return f'tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}", ca_file: "{trusted.ca_file}" }}'


def two_with_tls(tmp_path: Path, first: str, second: str) -> tuple[ServerProcess, ServerProcess]:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    port, other = free_port(), free_port()
    routes = f"routes: [nats://127.0.0.1:{port}]"
    x = ServerProcess(
        our_command(), f'cluster {{ name: T, listen: "127.0.0.1:{port}"\n{first} }}', tmp_path / "x", True
    )
    y = ServerProcess(
        our_command(),
        f'cluster {{ name: T, listen: "127.0.0.1:{other}", {routes}\n{second} }}',
        tmp_path / "y",
        True,
    )
    return x, y


def authority_in(folder: Path) -> Authority:
    folder.mkdir()
    return Authority(folder)


def test_routes_with_certificates_of_one_authority_are_encrypted(tmp_path: Path) -> None:
    authority = authority_in(tmp_path / "ca")
    x, y = two_with_tls(
        tmp_path,
        tls_block(tmp_path, "x", authority, authority),
        tls_block(tmp_path, "y", authority, authority),
    )
    try:
        x.start()
        y.start()
        assert x.logged("is open", WAIT_S)
        here, there = NodeClient(x.port), NodeClient(y.port)
        there.send(b"SUB r 1\r\n")
        there.fence()
        big = b"s" * 300_000
        while not there.frames:
            here.send(b"PUB r %d\r\n%b\r\n" % (len(big), big))
            here.fence()
            there.fence()
        assert there.frames[0][4] == big
        x.stop()
        assert y.logged('Route to the server "conformance" is closed', WAIT_S)
        assert not y.logged("eof_received", 0)  # asyncio prints this as a hint
    finally:
        x.kill()
        y.kill()


@pytest.mark.parametrize("case", ["another authority", "no TLS on one side"])
def test_a_route_without_a_trusted_certificate_does_not_open(tmp_path: Path, case: str) -> None:
    authority, stranger = authority_in(tmp_path / "ca"), authority_in(tmp_path / "other")
    second = "" if "no TLS" in case else tls_block(tmp_path, "y", stranger, authority)
    x, y = two_with_tls(tmp_path, tls_block(tmp_path, "x", authority, authority), second)
    try:
        x.start()
        y.start()
        server, text = (y, "this one needs it too") if "no TLS" in case else (x, "TLS handshake error")
        assert server.logged(text, WAIT_S)
        assert not x.logged("is open", 0)
        assert not y.logged("is open", 0)
    finally:
        x.kill()
        y.kill()
