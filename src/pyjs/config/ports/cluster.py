"""The `cluster` block: the port for other servers, and the addresses of their ports.

Source: nats.docs "Clustering" and "Cluster Configuration". Block and texts: tests/unit/config/test_wrong_inputs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from pyjs.base.gotext import quoted
from pyjs.config.access.authorization import read_auth_timeout
from pyjs.config.errors import Place, Problem, Refused
from pyjs.config.kinds import (
    BOOL,
    INT,
    LISTEN_HERE,
    STRING,
    fill,
    map_kind,
    port_in_range,
)
from pyjs.config.options import ClusterLogin, ClusterOptions, Options, RouteUrl, is_bcrypt
from pyjs.config.ports.advertised import check_advertised
from pyjs.config.ports.replicated import check_replicated
from pyjs.config.table import Key, Kind, Reading, Table, Unsupported
from pyjs.config.tls import TLS_BLOCK
from pyjs.config.values import Value

SCHEMES = ("nats", "nats-route", "tls")
URL_EXAMPLE = "write nats://host:6222"
PAYLOAD_MAX = 64 << 20  # bytes; a frame between servers has room for it (wire/route_frames.pxd)
_TWO_CONNECTIONS = "between two servers, small messages have one connection and large messages another"


class BadRoute(ValueError):
    """Raised for a string that is not the address of a route; the message states the reason."""


def read_route(text: str) -> RouteUrl:
    """Return the address in `text`, of the form nats://user:password@host:port.

    The scheme may be missing, and so may the user and password.

    Raises:
        BadRoute: `text` is not such an address.
    """
    parts = urlsplit(text if "//" in text else f"nats://{text}")
    if parts.scheme not in SCHEMES:
        raise BadRoute(f"{quoted(_without_login(text))} is no address of a route")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port:
        raise BadRoute(f"{quoted(_without_login(text))} has no host or no port")
    return RouteUrl(parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""))


def _without_login(text: str) -> str:
    """Return `text` for an error message; if it has an @, keep only the scheme and the part after the last @."""
    head, found, tail = text.rpartition("@")
    scheme = f"{head.partition('//')[0]}//" if "//" in head else ""
    return f"{scheme}...@{tail}" if found else text


def _read_routes(reading: Reading, key: Key, value: Value, target: object) -> tuple[RouteUrl, ...]:
    given = value.data if isinstance(value.data, list) else [value]
    routes = []
    for each in given:
        if not isinstance(each.data, str):
            raise Refused(each.place, f'"{key.name}" expects addresses', URL_EXAMPLE)
        try:
            routes.append(read_route(each.data))
        except BadRoute as bad:
            raise Refused(each.place, str(bad), URL_EXAMPLE) from None
    return tuple(routes)


def _check_password(reading: Reading, key: Key, value: Value, data: object) -> None:
    if isinstance(data, str) and is_bcrypt(data):
        cause = "a bcrypt hash of the route password is not supported yet: other servers send it in clear"
        raise Refused(value.place, cause, "write the password itself, and let others not read the file")


def _check_name(reading: Reading, key: Key, value: Value, data: object) -> None:
    if isinstance(data, str) and any(char.isspace() for char in data):
        raise Refused(
            value.place, "cluster name cannot contain spaces or wildcards", "use letters and digits"
        )


def _positive(reading: Reading, key: Key, value: Value, data: object) -> None:
    if not isinstance(data, int) or not 0 <= data <= 1_000_000:
        raise Refused(value.place, f'"{key.name}" is not between 0 and 1000000', "write 0 to never try again")


CLUSTER_LOGIN = Table(
    "cluster.authorization",
    (
        Key("user", STRING, "The user name that other servers must send.", ("username",)),
        Key(
            "password",
            STRING,
            "The password that other servers must send.",
            ("pass",),
            _check_password,
            secret=True,
        ),
        Key(
            "timeout",
            Kind("duration", read_auth_timeout, "Duration | float"),
            "Maximum time for the login of another server; a number is in seconds.",
        ),
    ),
    (
        Unsupported(("permissions",), "every server of the cluster may send every subject"),
        Unsupported(("users", "token"), "all servers of a cluster use one user and password"),
    ),
)
CLUSTER = Table(
    "cluster",
    (
        Key("name", STRING, "The name of the cluster, the same on each of its servers.", check=_check_name),
        Key(
            "listen",
            LISTEN_HERE,
            "The address and port for other servers, or a port alone.",
            attrs=("host", "port"),
        ),
        Key("host", STRING, "The address for other servers.", ("net",), zero_is_default=True),
        Key("port", INT, "The port for other servers; -1: any free port.", check=port_in_range),
        Key(
            "routes",
            Kind("addresses", _read_routes, "Sequence[str] | str"),
            "Addresses of other servers; one running server is enough to find all others.",
            reloadable=True,
        ),
        Key(
            "authorization",
            map_kind(CLUSTER_LOGIN, "user: route, password: secret", ClusterLogin),
            "The login that other servers need.",
            ("authentication",),
            reloadable=True,
        ),
        Key(
            "tls",
            TLS_BLOCK,
            "This server's certificate for routes, and the authority behind other servers' certificates.",
            reloadable=True,
        ),
        Key(
            "advertise",
            STRING,
            "host:port at which other servers reach this one.",
            ("cluster_advertise",),
            check=check_advertised,
        ),
        Key("no_advertise", BOOL, "Do not send the addresses of the other servers to clients."),
        Key(
            "connect_retries",
            INT,
            "Minimum number of attempts to reach a server not in `routes`; they last at least ten minutes.",
            check=_positive,
        ),
    ),
    (
        Unsupported(("pool_size",), _TWO_CONNECTIONS),
        Unsupported(("accounts",), _TWO_CONNECTIONS),
        Unsupported(("compression",), "routes are not compressed"),
        Unsupported(("permissions",), "every server of the cluster may send every subject"),
        Unsupported(("connect_backoff",), "the time between two attempts is at most 0.75 seconds"),
        Unsupported(("ping_interval", "ping_max"), "a silent server is noticed in less than a second"),
        Unsupported(
            ("write_deadline", "write_timeout"),
            "a route is closed when too many bytes wait for it, not after a time",
        ),
    ),
)


def read_cluster(reading: Reading, key: Key, value: Value, target: object) -> ClusterOptions:
    """Read the block `cluster` into the options of `target`, and return them."""
    assert isinstance(target, Options)
    options = target.cluster
    return fill(reading, CLUSTER, key, value, "name: EAST, port: 6222, routes: [...]", options)


def apply_cluster_flags(options: Options, flags: Mapping[str, object], place: Place) -> Iterator[Problem]:
    """Set cluster options from the flags --cluster, --cluster_listen and --routes; yield the problems."""
    block = options.cluster
    for name in ("cluster", "cluster_listen"):
        text = flags.get(name)
        if not isinstance(text, str) or not text:
            continue
        try:
            url = read_route(text.removesuffix(":-1") + (":1" if text.endswith(":-1") else ""))
        except BadRoute as bad:
            yield Problem(place, f"--{name}: {bad}", URL_EXAMPLE)
            continue
        block.host, block.port = url.host, -1 if text.endswith(":-1") else url.port
        if url.user:
            block.authorization.user, block.authorization.password = url.user, url.password
    text = flags.get("routes")
    if isinstance(text, str) and text:
        try:
            block.routes = tuple(read_route(each.strip()) for each in text.split(","))
        except BadRoute as bad:
            yield Problem(place, f"--routes: {bad}", URL_EXAMPLE)


def check_cluster(options: Options, at: Callable[[str], Place]) -> list[Problem]:
    """Return the problems of the block `cluster` in combination with other options."""
    block = options.cluster
    if not block.port:
        if block.routes:
            fix = "add port: 6222 (or listen) to the block"
            return [Problem(at("cluster.routes"), "routes need a cluster port", fix)]
        return []
    if options.limits.max_payload > PAYLOAD_MAX:
        cause = f"max_payload ({options.limits.max_payload}) is more than a route carries"
        return [Problem(at("limits.max_payload"), cause, "lower it to 64MB, or remove the block cluster")]
    return check_replicated(options, at) if options.jetstream.enabled else []
