"""Checks of the network: whether ports can be opened, and whether the servers of the cluster can be reached."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import reason_of
from pyjs.server.doctor.findings import fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding

REACH_S = 2.0
PRIVILEGED = 1024


class Port(NamedTuple):
    """A port that the server opens."""

    subject: str
    key: str  # key of the configuration
    host: str
    number: int


def ports_of(options: Options) -> list[Port]:
    """Return the configured ports, except those that are -1 (any free port)."""
    monitoring, cluster, websocket = options.monitoring, options.cluster, options.websocket
    found = (
        Port("port", "port", options.host, options.port),
        Port("http", "http_port", monitoring.host or options.host, monitoring.http_port),
        Port("https", "https_port", monitoring.host or options.host, monitoring.https_port),
        Port("cluster", "cluster.port", cluster.host or options.host, cluster.port),
        Port("websocket", "websocket.port", websocket.host or options.host, websocket.port),
    )
    return [port for port in found if port.number > 0]


def check_network(options: Options) -> Iterator[Finding]:
    """Check the ports of the server and its routes."""
    for port in ports_of(options):
        yield _check_port(port)
    for route in options.cluster.routes:
        yield _check_route(route.host, route.port)


def _check_port(port: Port) -> Finding:
    where = f"{port.host}:{port.number}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            port.host, port.number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1)
    except OSError as error:
        return fail(port.subject, f"{where}: {reason_of(error)}", _port_fix(port, error.errno or 0))
    return ok(port.subject, f"{where} is free")


def _port_fix(port: Port, code: int) -> str:
    if code == errno.EADDRINUSE:
        return (
            f"another process listens there (ss -ltnp | grep :{port.number}): stop it, or change `{port.key}`"
        )
    if code == errno.EACCES and port.number < PRIVILEGED:
        return f"use a port from {PRIVILEGED}, or give the process CAP_NET_BIND_SERVICE"
    if code == errno.EADDRNOTAVAIL:
        return "this machine does not have that address: use 0.0.0.0 or one of its own"
    return f"change `{port.key}`"


def _check_route(host: str, port: int) -> Finding:
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        fix = "start that server, open the port in the firewall, or correct `routes`"
        return warn("route", f"{host}:{port}: {reason_of(error)}", fix)
    return ok("route", f"{host}:{port} answers")
