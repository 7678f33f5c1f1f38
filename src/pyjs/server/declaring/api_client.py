"""A small blocking client that sends requests to the JetStream API of a running server.

Only for `pyjs-server plan`, which has no event loop. It sends some requests at once and waits for their answers.
"""

from __future__ import annotations

import base64
import socket
import ssl
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

import orjson

from pyjs.base.errors import PyjsError, reason_of
from pyjs.base.nuid import nuid
from pyjs.wire.nkeys import KEY_SIZE, USER, KeyPair

if TYPE_CHECKING:
    from pyjs.base.rng import Rng
    from pyjs.declared.asking import Answer, Ask, Exchange

WAIT_S = 10.0  # maximum time for each read
LINE_MAX = 1 << 20  # bytes of a protocol line
PAYLOAD_MAX = 64 << 20  # bytes of an answer
NO_RESPONDERS = b"NATS/1.0 503"

Result = TypeVar("Result")


class ConnectFailed(PyjsError):
    """The server cannot be reached, refuses the login, or ends the connection."""


class Login(NamedTuple):
    """The credentials of one user; without any, the server decides."""

    user: str = ""
    password: str = ""
    token: str = ""
    seed: str = ""  # of an nkey


class TlsFiles(NamedTuple):
    """The files for an encrypted connection; "": none."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class ApiClient:
    """A connection of one user."""

    def __init__(self, host: str, port: int, login: Login, tls: TlsFiles, rng: Rng) -> None:
        """Connect and log in.

        Raises:
            ConnectFailed: the text has the reason.
        """
        self._where = f"{host}:{port}"
        self._inbox = f"_INBOX.{nuid(rng)}".encode()
        self._sent = 0  # number of all requests
        try:
            self._socket: socket.socket = socket.create_connection((host, port), WAIT_S)
            self._file: BinaryIO = self._socket.makefile("rb")
            info = self._info()
            if info.get("tls_required"):
                self._encrypt(host, tls)
            self._write(b"CONNECT %b\r\nPING\r\n" % orjson.dumps(_options(login, info)))
            while self._line() != b"PONG":
                pass
            self._write(b"SUB %b.* 1\r\n" % self._inbox)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"{self._where}: {_reason(error)}") from None

    def _info(self) -> dict[str, Any]:
        line = self._file.readline(LINE_MAX)
        if not line.startswith(b"INFO "):
            raise ConnectFailed(f"{self._where} is no NATS server, or one that expects TLS before its INFO")
        info: dict[str, Any] = orjson.loads(line[5:])
        return info

    def _encrypt(self, host: str, tls: TlsFiles) -> None:
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key or None)
        self._file.close()
        self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def run(self, exchange: Exchange[Result]) -> Result:
        """Carry out an exchange; return its result, or raise its exception.

        Raises:
            ConnectFailed: the connection ended.
        """
        try:
            asks = next(exchange)
            while True:
                asks = exchange.send(self._ask(asks))
        except StopIteration as end:
            result: Result = end.value
            return result
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"{self._where}: {_reason(error)}") from None

    def _ask(self, asks: list[Ask]) -> list[Answer]:
        """Send requests and return their answers, in the same order."""
        first = self._sent
        for ask in asks:
            head = b"PUB $JS.API.%b %b.%d %d\r\n" % (
                ask.words.encode(),
                self._inbox,
                self._sent,
                len(ask.payload),
            )
            self._write(head + ask.payload + b"\r\n")
            self._sent += 1
        answers: list[Answer] = [None] * len(asks)
        missing = len(asks)
        while missing:
            number, payload = self._message()
            if 0 <= number - first < len(asks):
                answers[number - first] = payload
                missing -= 1
        return answers

    def _message(self) -> tuple[int, Answer]:
        """Return the number of the request that the next message answers, and the answer; None: status 503."""
        line = self._line()
        while not line.startswith((b"MSG ", b"HMSG ")):
            line = self._line()
        words = line.split(b" ")
        number, size = int(words[1].rpartition(b".")[2]), int(words[-1])
        if size > PAYLOAD_MAX:
            raise ConnectFailed(f"{self._where}: an answer of {size} bytes")
        data = self._file.read(size + 2)
        if len(data) < size + 2:
            raise ConnectFailed(f"{self._where} closed the connection")
        body = data[:size]
        if words[0] == b"HMSG":
            head_size = int(words[-2])
            if body.startswith(NO_RESPONDERS):
                return number, None
            body = body[head_size:]
        answer: object = orjson.loads(body)
        return number, answer if isinstance(answer, dict) else None

    def _line(self) -> bytes:
        """Return the next protocol line; answer a PING."""
        while True:
            line = self._file.readline(LINE_MAX)
            if not line.endswith(b"\n"):
                raise ConnectFailed(f"{self._where} closed the connection")
            line = line.rstrip(b"\r\n")
            if line.startswith(b"-ERR"):
                raise ConnectFailed(f"{self._where}: {line[5:].decode(errors='replace').strip(chr(39))}")
            if line == b"PING":
                self._write(b"PONG\r\n")
            else:
                return line

    def _write(self, data: bytes) -> None:
        self._socket.sendall(data)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {WAIT_S:g} seconds"
    return reason_of(error) if isinstance(error, OSError) else str(error)


def _options(login: Login, info: dict[str, Any]) -> dict[str, Any]:
    """Return the options of CONNECT."""
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "name": "pyjs-server plan",
        "lang": "python",
        "version": "1",
        "protocol": 1,
        "headers": True,
        "no_responders": True,
    }
    if login.seed:
        pair = KeyPair(_seed_bytes(login.seed), USER)
        signature = pair.sign(str(info.get("nonce", "")).encode())
        return options | {
            "nkey": pair.public,
            "sig": base64.urlsafe_b64encode(signature).decode().rstrip("="),
        }
    if login.token:
        return options | {"auth_token": login.token}
    return options | {"user": login.user, "pass": login.password} if login.user else options


def _seed_bytes(text: str) -> bytes:
    """Return the 32 bytes of a seed. Raises ValueError."""
    body = base64.b32decode(text + "=" * (-len(text) % 8))
    if not text.startswith("SU") or len(body) != KEY_SIZE + 4:
        raise ValueError("the file of --nkey has no seed of a user")
    return body[2:-2]
