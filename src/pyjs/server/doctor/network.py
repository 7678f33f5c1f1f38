"""Checks of the network: whether ports can be opened, and whether the servers of the cluster can be reached."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import reason_of
from pyjs.server.addresses import port_remedy
from pyjs.server.doctor.findings import fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import ClusterOptions, Options, RouteUrl
    from pyjs.server.doctor.findings import Finding

REACH_S = 2.0
NO_NAME = "this is neither an address nor a name of a machine"


class Port(NamedTuple):
    """A port that the server opens."""

    subject: str
    key: str  # key of the configuration
    host: str
    number: int


def ports_of(options: Options) -> list[Port]:
    """Return the configured ports whose number is fixed, that is, greater than 0."""
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
    """Check whether the ports can be opened and the routes can be reached, and yield the findings."""
    # ports stay open during the check, so that two keys with the same port are noticed
    with ExitStack() as held:
        seen: dict[int, str] = {}
        for port in ports_of(options):
            yield _check_port(port, held, seen)
            seen.setdefault(port.number, port.key)
    for route in options.cluster.routes:
        yield _check_route(route, options.cluster)


def _check_port(port: Port, held: ExitStack, seen: dict[int, str]) -> Finding:
    where = f"{port.host}:{port.number}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            port.host, port.number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = held.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1)
    except ValueError:
        return fail(port.subject, f"{where}: {NO_NAME}", "give an address or a name of this machine")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and port.number in seen:
            fix = f"change `{seen[port.number]}` or `{port.key}`"
            return fail(port.subject, f"{where}: `{seen[port.number]}` is the same port", fix)
        return fail(
            port.subject, f"{where}: {reason_of(error)}", port_remedy(error.errno or 0, port.number, port.key)
        )
    return ok(port.subject, f"{where} is free")


def _check_route(route: RouteUrl, cluster: ClusterOptions) -> Finding:
    host, port = route.host, route.port
    try:
        if _is_own(route, cluster):
            return ok("route", f"{host}:{port} is this server")
        socket.create_connection((host, port), REACH_S).close()
    except ValueError:
        return warn("route", f"{host}:{port}: {NO_NAME}", "correct `routes`")
    except OSError as error:
        fix = "start that server, open the port in the firewall, or correct `routes`"
        return warn("route", f"{host}:{port}: {reason_of(error)}", fix)
    return ok("route", f"{host}:{port} answers")


def _is_own(route: RouteUrl, cluster: ClusterOptions) -> bool:
    """Return whether a route leads to this server.

    If all servers of a cluster have the same list of routes, the list also has a route to this server.

    Raises:
        OSError, ValueError: the host has no address.
    """
    if (route.host, route.port) == cluster.advertised:
        return True
    if route.port != cluster.port:
        return False
    family, kind, protocol, _, address = socket.getaddrinfo(route.host, 0, type=socket.SOCK_DGRAM)[0]
    if not cluster.is_wildcard and address[0] not in _addresses(cluster.host):
        return False  # another server on this machine
    try:
        with socket.socket(family, kind, protocol) as sock:
            sock.bind(address)
    except OSError:
        return False  # an address of another machine
    return True


def _addresses(host: str) -> set[str | int]:
    return {each[4][0] for each in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)}
