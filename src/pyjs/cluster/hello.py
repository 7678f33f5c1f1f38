"""The first lines of a route: they identify both servers, and accept or refuse the route.

The listening side sends `INFO {...}`, the other side answers with `CONNECT {...}`, and then the listening side sends
`+OK` or `-ERR 'text'`. After +OK, both sides send frames (wire/route_frames). The first lines of a nats-server lack
the field `pyjs_route`: this server then refuses the route, and gives the reason in its log and in an `-ERR`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyjs.core.auth.identity import Sender

if TYPE_CHECKING:
    from typing import Any

ROUTE_VERSION = 4
MESSAGES = "messages"
PULSE = "pulse"
BULK = "bulk"
CONSENSUS = "consensus"
LINE_MAX = 65536  # maximum bytes of a line
URLS_MAX = 128
URL_MAX = 300  # maximum characters of an address
TEXT_MAX = 4096


class BadHello(ValueError):
    """Raised if a first line or a frame from the other side is invalid. The exception's message is the reason."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The description of a server in the first line that it sends."""

    server_id: str
    server_name: str
    cluster: str
    route_host: str  # host at which other servers reach the route port; "": the address of the connection
    route_port: int
    client_urls: tuple[str, ...] = ()  # host:port
    auth_required: bool = False
    version: str = ""  # version of pyjs-server
    user: str = ""  # user in CONNECT
    password: str = ""
    purpose: str = MESSAGES  # purpose of the connection; only in CONNECT
    rid: int = 0  # the number that the sender has given the connection
    beside: int = 0  # only in CONNECT: the receiver's number of the route that this connection belongs to
    replicates: bool = False  # the server has replicated groups, or may get some

    def fields(self) -> dict[str, object]:
        """Return the JSON fields, without the login."""
        return {
            "pyjs_route": ROUTE_VERSION,
            "server_id": self.server_id,
            "server_name": self.server_name,
            "cluster": self.cluster,
            "host": self.route_host,
            "port": self.route_port,
            "connect_urls": list(self.client_urls),
            "auth_required": self.auth_required,
            "version": self.version,
            "purpose": self.purpose,
            "rid": self.rid,
            "beside": self.beside,
            "replicates": self.replicates,
        }


def info_line(info: PeerInfo) -> bytes:
    """Return the first line of the listening side."""
    return b"INFO " + orjson.dumps(info.fields()) + b"\r\n"


def connect_line(info: PeerInfo) -> bytes:
    """Return the answer of the connecting side, with its login."""
    login = {"user": info.user, "pass": info.password} if info.user or info.password else {}
    return b"CONNECT " + orjson.dumps(info.fields() | login) + b"\r\n"


def read_hello(line: bytes, verb: str) -> PeerInfo:
    """Return the description in the first line of the other side; `verb` is INFO or CONNECT.

    Raises:
        BadHello: the line is invalid, or the other side is a nats-server or has another version.
    """
    name, _, text = line.partition(b" ")
    if name.upper() != verb.encode():
        raise BadHello(f"the first line of a route is {verb}, not {shown(line)}")
    given = read_object(text, f"the text after {verb}")
    version = given.get("pyjs_route")
    if version is None:
        raise BadHello(foreign(given))
    if version != ROUTE_VERSION:
        raise BadHello(
            f"route protocol {shown(version)} instead of {ROUTE_VERSION}: use one version of pyjs-server"
        )
    return _peer_from(given)


def foreign(given: dict[str, Any]) -> str:
    """Return the text that refuses a nats-server. `given` are the fields of its first line."""
    name = given.get("server_name") or given.get("name") or given.get("server_id") or "unknown"
    return (
        f"{shown(name)} is a nats-server, whose route protocol pyjs-server does not speak;"
        " every server of the cluster must be a pyjs-server"
    )


def _peer_from(given: dict[str, Any]) -> PeerInfo:
    port = given.get("port")
    if type(port) is not int or not 0 <= port <= 65535:
        raise BadHello("the field port is no port number")
    info = PeerInfo(
        _text(given, "server_id"),
        _text(given, "server_name"),
        _text(given, "cluster"),
        _text(given, "host"),
        port,
        read_urls(given.get("connect_urls")),
        given.get("auth_required") is True,
        _text(given, "version"),
        _text(given, "user"),
        _text(given, "pass"),
        _text(given, "purpose") or MESSAGES,
        _number(given, "rid"),
        _number(given, "beside"),
        given.get("replicates") is True,
    )
    if info.purpose not in (MESSAGES, PULSE, BULK, CONSENSUS):
        raise BadHello(f"a connection for {shown(info.purpose)} is not known here")
    if not info.server_id:
        raise BadHello("the field server_id is missing")
    return info


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > TEXT_MAX or not value.isprintable():
        raise BadHello(f"the field {name} is no printable text of at most {TEXT_MAX} characters")
    return value


def _number(given: dict[str, Any], name: str) -> int:
    value = given.get(name, 0)
    if type(value) is not int or value < 0:
        raise BadHello(f"the field {name} is no number")
    return value


def read_urls(given: object) -> tuple[str, ...]:
    """Return the addresses in `given`, a value from JSON.

    Raises:
        BadHello: the value is not a list of at most URLS_MAX short printable strings.
    """
    urls = given or []
    if (
        not isinstance(urls, list)
        or len(urls) > URLS_MAX
        or not all(isinstance(url, str) and len(url) <= URL_MAX and url.isprintable() for url in urls)
    ):
        raise BadHello(f"the field connect_urls is no list of at most {URLS_MAX} addresses")
    return tuple(urls)


def read_sender(text: bytes) -> Sender:
    """Return the sender of a message, a client of another worker, from its description in JSON.

    Raises:
        BadHello: `text` is not a JSON object.
    """
    return Sender(read_object(text, "the sender of a message"))


def read_object(text: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in `text`, which the other side sent; `what` describes this text in errors.

    Raises:
        BadHello: `text` is not a JSON object.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadHello(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadHello(f"{what} is not a JSON object")
    return found


def shown(value: object) -> str:
    """Return input from the other side as a short printable text, for log lines."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return ascii(text[:100])
