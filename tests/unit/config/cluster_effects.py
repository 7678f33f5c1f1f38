"""The effects of the keys of the block `cluster`, on a node without sockets."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.unit.config.effects import KEY, Effect
from tests.unit.config.process_effects import LOCAL, PAIR, WAIT_S, Running
from tests.unit.monitor.conftest import Site

from pyjs.cluster.cluster import Cluster
from pyjs.core.link import Peer
from pyjs.testing import MemoryLink

HELLO = {
    "pyjs_route": 4,
    "server_id": "NOTHER",
    "server_name": "other",
    "cluster": "EAST",
    "host": "",
    "port": 7,
}


def cluster_of(site: Site) -> Cluster:
    cluster = site.node.cluster
    assert cluster is not None
    return cluster


class Other:
    """A connection that plays another server, with raw bytes."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.link = MemoryLink()
        self.route = cluster_of(site).open_route(Peer("10.9.9.9", 1), self.link)
        site.fixture.turn()

    def info(self) -> Any:
        return json.loads(self.link.data.partition(b"\r\n")[0][5:])

    def connect(self, **login: object) -> bytes:
        """Return the first line of the answer to CONNECT."""
        self.link.data = b""
        self.route.receive_data(b"CONNECT " + json.dumps(HELLO | login).encode() + b"\r\n")
        self.site.fixture.turn()
        return self.link.data.partition(b"\r\n")[0]


def varz(site: Site) -> object:
    return site.json("/varz")["cluster"]


def greeting(site: Site) -> object:
    """Observe the server's INFO, without its id."""
    return Other(site).info() | {"server_id": "", "server_name": ""}


def login(**fields: object) -> Any:
    """Observe the answer to a login."""
    return lambda site: Other(site).connect(**fields)


def dials(site: Site) -> object:
    """Observe the addresses that the server connects to when it starts."""
    cluster_of(site).start()
    return [str(dial) for dial in cluster_of(site).take_dials()]


def tries(site: Site) -> object:
    """Observe how many times the server tries to connect to a server that another one reported."""
    other = Other(site)
    other.connect()
    cluster = cluster_of(site)
    cluster.peer_says(other.route, b'{"peers":[{"id":"NTHIRD","host":"10.9.9.8","port":5}]}')
    other.route.close("test")  # from now on no server reports it
    count = 0
    for _ in range(10):
        for dial in cluster.take_dials():
            count += 1
            cluster.dial_failed(dial, "refused")
        site.fixture.advance(seconds=120)
    return count


def told_clients(site: Site) -> object:
    """Observe whether clients are told the URLs of another server."""
    Other(site).connect(connect_urls=["10.9.9.9:4222"])
    return b"10.9.9.9:4222" in site.client().info


def silence(site: Site) -> object:
    """Observe whether a silent server's connection is closed within a second."""
    other = Other(site)
    site.fixture.advance(seconds=1)
    site.fixture.turn()
    return other.link.closed


def block(key: str, observe: Any, without: str = "", beside: str = "port: 6222") -> Effect:
    """Return the experiment with a key of the block, together with other keys."""
    return Effect(f"cluster {{ {beside}\n{KEY}\n}}", key, observe, without)


CLUSTER_EFFECTS: dict[str, list[Effect]] = {
    "cluster": [Effect(KEY, "cluster { port: 6222 }", varz)],
    "cluster/name": [block("name: EAST", varz), block("name: WEST", login())],
    "cluster/listen": [block('listen: "127.0.0.2:6333"', varz, "port: 6222", "name: a")],
    "cluster/host": [block("host: 127.0.0.2", greeting)],
    "cluster/port": [block("port: 6333", varz, "port: 6222", "name: a")],
    "cluster/routes": [block("routes: [nats://10.0.0.7:6222]", dials)],
    "cluster/authorization": [block("authorization { user: u, password: p }", login())],
    "cluster/advertise": [block('advertise: "example.com:5"', greeting)],
    "cluster/no_advertise": [block("no_advertise: true", told_clients)],
    "cluster/connect_retries": [block("connect_retries: 20", tries)],
    "cluster.authorization/user": [
        block(
            "authorization { user: u, password: p }",
            login(user="u", **{"pass": "p"}),
            "authorization { user: x, password: p }",
        )
    ],
    "cluster.authorization/password": [
        block(
            "authorization { user: u, password: p }",
            login(user="u", **{"pass": "p"}),
            "authorization { user: u, password: x }",
        )
    ],
    "cluster.authorization/timeout": [block("authorization { timeout: 0.5 }", silence)],
}


def first_line(running: Running) -> object:
    """Observe the answer of the route port to a connection without TLS."""
    port = int(running.address("Listening for route connections").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as line:
        line.sendall(b"CONNECT {}\r\n")
        return line.recv(5)


CLUSTER_PROCESS_EFFECTS: dict[str, list[Effect]] = {
    "cluster/tls": [
        Effect(
            f'{LOCAL}\ncluster {{ listen: "127.0.0.1:-1"\n{KEY}\n}}',
            f"tls {{ {PAIR}, ca_file: ca.pem }}",
            first_line,
        )
    ],
}
