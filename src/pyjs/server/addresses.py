"""Listening sockets, the text of addresses, and the addresses of this machine.

`0.0.0.0` and `::` both listen on IPv6 and IPv4 if the machine has IPv6, as in nats-server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING

from pyjs.config.ports.advertised import advertised_address

if TYPE_CHECKING:
    from pyjs.config.options import Options

BACKLOG = 4096
PRIVILEGED = 1024  # the first port that needs no privilege
WILDCARDS = ("", "0.0.0.0", "::")
SIOCGIFADDR = 0x8915  # linux/sockios.h
IF_INET6 = "/proc/net/if_inet6"


class ListenFailed(Exception):
    """Raised when the server cannot listen on a port or path; the error message is that of Go."""

    def __init__(self, text: str, code: int = 0, port: int = 0) -> None:
        super().__init__(text)
        self._code = code  # errno; 0: unknown
        self._port = port

    def remedy(self, key: str) -> str:
        """Return a remedy to show to the operator; `key` is the configuration key of the port."""
        return port_remedy(self._code, self._port, key)


def port_remedy(code: int, port: int, key: str) -> str:
    """Return a remedy for a port that cannot be used.

    `code` is the errno of the failure, and `key` the configuration key of the port.
    """
    if code == errno.EADDRINUSE:
        return f"another process listens there (ss -ltnp | grep :{port}): stop it, or change `{key}`"
    if code == errno.EACCES and port < PRIVILEGED:
        return f"use a port from {PRIVILEGED}, or give the process CAP_NET_BIND_SERVICE"
    if code == errno.EADDRNOTAVAIL:
        return "this machine does not have that address: use 0.0.0.0 or one of its own"
    return f"change `{key}`"


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens on `host` and `port`; the arguments are those of `bind`.

    Raises:
        ListenFailed: the port cannot be used.
    """
    sock = bind(host, port, shared=shared)
    start_listening(sock, host)
    return sock


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to `host` and `port` (-1 or 0: any free port) but does not listen yet.

    With `shared`, other workers of this server may listen on the same port; the kernel distributes the connections.

    Raises:
        ListenFailed: the port cannot be used.
    """
    port = max(port, 0)
    if port > 65535:
        raise ListenFailed(f"listen tcp: address {port}: invalid port")
    try:
        return _bound_any(port, shared) if host in WILDCARDS else _bound_at(host, port, shared)
    except socket.gaierror as error:
        reason = "no such host" if error.errno == socket.EAI_NONAME else str(error.strerror)
        raise ListenFailed(f"listen tcp: lookup {host}: {reason}") from None
    except OSError as error:
        raise _failed(host, port, error) from None


def start_listening(sock: socket.socket, host: str) -> None:
    """Make a bound socket listen; if that fails, close the socket. `host` is shown in the error.

    Raises:
        ListenFailed: the socket cannot listen, for example because another process listens on the same port.
    """
    port = sock.getsockname()[1]
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _failed(host, port, error) from None


def _failed(host: str, port: int, error: OSError) -> ListenFailed:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return ListenFailed(f"listen tcp {host_port(host, port)}: bind: {reason}", error.errno or 0, port)


def reserve(host: str, port: int) -> socket.socket:
    """Reserve a port: return a bound socket that does not listen.

    Until this socket is closed, only sockets that are bound with `shared` can use the same host and port.

    Raises:
        ListenFailed: the port cannot be used, for example because another program listens on it.
    """
    alone = listen(host, port)
    port = alone.getsockname()[1]
    alone.close()
    try:
        return _bound_any(port, True) if host in WILDCARDS else _bound_at(host, port, True)
    except OSError as error:
        raise _failed(host, port, error) from None


def listen_at_path(path: str) -> socket.socket:
    """Return a socket that listens on the Unix socket `path`; an existing file at `path` is removed first.

    Raises:
        ListenFailed: the path cannot be used.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.exists(path):
            os.unlink(path)
        sock.setblocking(False)
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenFailed(f"listen unix {path}: {error.strerror or error}") from None
    return sock


def _bound_any(port: int, shared: bool) -> socket.socket:
    if socket.has_ipv6:
        try:
            return _bound(socket.AF_INET6, ("::", port), shared)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):  # IPv4 would fail in the same way
                raise
    return _bound(socket.AF_INET, ("0.0.0.0", port), shared)


def _bound_at(host: str, port: int, shared: bool) -> socket.socket:
    # As bytes: for a str, Python would import the codec "idna", which adds 1.5 ms to the server's start.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return _bound(family, (str(address[0]), port), shared)


def _bound(family: int, address: tuple[str, int], shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_ip(ip: str) -> str:
    """Return `ip` without its zone; an IPv4-mapped IPv6 address becomes plain IPv4."""
    return ip.removeprefix("::ffff:").partition("%")[0] if "." in ip else ip.partition("%")[0]


def urls(scheme: str, host: str, port: int) -> list[str]:
    """Return the URLs of a listener on `host`; for a wildcard host, one per local address."""
    hosts = local_ips() if host in WILDCARDS else [host]
    return [f"{scheme}://{host_port(each, port)}" for each in hosts]


def client_urls(options: Options, port: int) -> list[str]:
    """Return the `host:port` addresses that clients should use.

    If an address is advertised, it is the only one. Otherwise they are the addresses at which other machines reach
    `port`.
    """
    if options.client_advertise:
        return [host_port(*advertised_address(options.client_advertise, port))]
    return reachable(options.host, port)


def reachable(host: str, port: int) -> list[str]:
    """Return the `host:port` addresses at which other machines reach a listener.

    For a wildcard host, loopback and link-local addresses of this machine are left out. If the machine has no other
    addresses, only the first of them is returned.
    """
    if host not in WILDCARDS:
        return [host_port(host, port)]
    from ipaddress import ip_address  # only a cluster or a ports file needs it

    addresses = [ip_address(each) for each in local_ips()]
    others = [each for each in addresses if not each.is_loopback and not each.is_link_local]
    return [host_port(str(each), port) for each in others or addresses[:1]]


def local_ips() -> list[str]:
    """Return this machine's IP addresses, one interface after another; each interface begins with its IPv4 address.

    If there are no addresses, return only 127.0.0.1.
    """
    v6 = _ipv6_by_interface()
    ips: list[str] = []
    for _, name in socket.if_nameindex():
        ipv4 = _ipv4_of(name)
        if ipv4:
            ips.append(ipv4)
        ips += v6.get(name, [])
    return ips or ["127.0.0.1"]


def _ipv4_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            reply = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(reply[20:24])


def _ipv6_by_interface() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        with open(IF_INET6) as file:
            lines = file.read().splitlines()
    except OSError:
        return found
    for line in lines:
        digits, _, _, _, _, name = line.split()
        found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found
