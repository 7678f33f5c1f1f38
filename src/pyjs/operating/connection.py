"""A blocking connection of an operator to a running server, for a few requests at a time.

The connection is not a client for applications: it has only the operations that a command needs, and limits all
input, since the server may be any program.

Source: nats.docs "Client Protocol".
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyjs.base.errors import PyjsError
from pyjs.base.gotext import printable
from pyjs.base.nuid import nuid
from pyjs.server.system.clock import OsRng
from pyjs.wire.nkeys import USER, KeyPair, seed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

LINE_SIZE_MAX = 1 << 20  # bytes
ANSWER_SIZE_MAX = 64 << 20
DIGITS_MAX = 18  # of a size or a number
NO_RESPONDERS = b"NATS/1.0 503"
WHERE = "give its address as --server nats://HOST:PORT"
LOGIN = (
    "log in as a user of the system account: --user NAME and the password in NATS_PASSWORD, or --creds FILE"
)


class AskFailed(PyjsError):
    """Raised when a request fails; the exception's message states the reason and the remedy."""


class NoAnswer(AskFailed):
    """Raised when the server does not answer in time."""


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """The credentials of the operator; empty fields are not sent."""

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    seed: str = ""  # of an nkey, which signs the nonce


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the certificates and of the key for TLS; "" if a path is not given."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class OperatorConnection:
    """One connection to a server, open until the end of its `with` block."""

    def __init__(
        self,
        url: str,
        login: Login,
        tls: TlsFiles,
        timeout_s: float,
        *,
        name: str = "pyjs-server",
        fix: str = LOGIN,
    ) -> None:
        """Connect to `url` as the client `name`, and log in.

        A user or token in the URL replaces `login`. `fix` is the remedy in the error if the login is refused.

        Raises:
            AskFailed: the URL is invalid, the connection fails, or the server refuses the login.
        """
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        try:
            self._host, port = parts.hostname or "127.0.0.1", parts.port or 4222
        except ValueError:
            raise AskFailed(f"{url} is no address: {WHERE}") from None
        if parts.scheme not in ("nats", "tls"):
            raise AskFailed(
                f"the scheme {parts.scheme}:// is not supported here: {WHERE}, or tls://HOST:PORT"
            )
        if parts.username:
            user, word = unquote(parts.username), unquote(parts.password or "")
            login = Login(user, word) if parts.password is not None else Login(token=user)
        self.address = f"{self._host}:{port}"
        self._name, self._fix = name, fix
        self._inbox = f"_INBOX.{nuid(OsRng())}".encode()
        self._sent = 0  # number of all requests
        self._read = b""
        try:
            self._socket = socket.create_connection((self._host, port), timeout_s)
        except OSError as error:
            reason = error.strerror or str(error)
            raise AskFailed(
                f"no connection to {self.address} ({reason.lower()}): start the server, or {WHERE}"
            ) from None
        try:
            self.info = self._greeting()
            if parts.scheme == "tls" or self.info.get("tls_required"):
                self._encrypt(tls)
            self._log_in(login)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def request(self, subject: str, body: bytes) -> dict[str, object]:
        """Send a request, and return the first answer, decoded from JSON.

        Raises:
            AskFailed: there is no answer, or it is no JSON object, or the user may not send this request.
        """
        [answer] = self.request_all([(subject, body)])
        if answer is None:
            raise AskFailed(f"{self.address} does not answer this user: {self._fix}")
        return answer

    def request_all(self, requests: Sequence[tuple[str, bytes]]) -> list[dict[str, object] | None]:
        """Send requests together, and return their answers in the same order.

        Each request is a subject and a body. The answer is None for a request without a responder (status 503).

        Raises:
            AskFailed: an answer does not arrive in time, or the user may not send a request.
        """
        first = self._sent
        for subject, body in requests:
            head = b"PUB %b %b.%d %d\r\n" % (subject.encode(), self._inbox, self._sent, len(body))
            self._send(b"%b%b\r\n" % (head, body))
            self._sent += 1
        answers: dict[int, dict[str, object] | None] = {}
        while len(answers) < len(requests):
            number, answer = self._answer()
            if first <= number < self._sent:
                answers[number] = answer
        return [answers[number] for number in range(first, self._sent)]

    # -- the protocol ------------------------------------------------------------------------------------------
    def _greeting(self) -> dict[str, object]:
        verb, line = self._operation()
        if verb != b"INFO":
            raise AskFailed(f"{self.address} is not the client port of a NATS server: {WHERE}")
        return self._object(line)

    def _encrypt(self, files: TlsFiles) -> None:
        if self._read:  # it may be from anybody, and would be taken for an encrypted answer
            self._operation()  # raises an error with its text
            raise AskFailed(f"{self.address} sends more than its INFO before the encryption: {WHERE}")
        try:
            context = ssl.create_default_context(cafile=files.ca or None)
            if files.cert:
                context.load_cert_chain(files.cert, files.key or None)
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        except (OSError, ValueError) as error:
            raise AskFailed(
                f"no encrypted connection to {self.address} ({error}): "
                "give the certificate of its authority as --tlsca FILE"
            ) from None

    def _log_in(self, login: Login) -> None:
        fields: dict[str, object] = {
            "verbose": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "name": self._name,
            "lang": "python",
        }
        given = {"user": login.user, "pass": login.password, "auth_token": login.token, "jwt": login.jwt}
        fields |= {name: value for name, value in given.items() if value}
        if login.seed:
            pair = KeyPair(_seed(login.seed), USER)
            signature = pair.sign(str(self.info.get("nonce", "")).encode())
            fields["sig"] = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
            if not login.jwt:
                fields["nkey"] = pair.public
        self._send(b"CONNECT %b\r\nSUB %b.* 1\r\nPING\r\n" % (json.dumps(fields).encode(), self._inbox))
        while self._operation()[0] != b"PONG":
            pass

    def _answer(self) -> tuple[int, dict[str, object] | None]:
        """Return (number of a request, its answer) from the next message; the answer is None for status 503.

        Raises:
            AskFailed: the connection fails, or the message is not valid.
        """
        while True:
            verb, line = self._operation()
            if verb not in (b"MSG", b"HMSG"):
                continue
            words = line.split()
            with_headers = verb == b"HMSG"
            numbers = (
                [words[0].rpartition(b".")[2], words[-2 if with_headers else -1], words[-1]]
                if words[2:]
                else []
            )
            if not numbers or not all(each.isdigit() and len(each) <= DIGITS_MAX for each in numbers):
                raise AskFailed(f"{self.address} is not the client port of a NATS server: {WHERE}")
            number, head_size, size = map(int, numbers)
            payload = self._take(size + 2)[:-2]
            if with_headers and payload.startswith(NO_RESPONDERS):
                return number, None
            return number, self._object(payload[head_size if with_headers else 0 :])

    def _operation(self) -> tuple[bytes, bytes]:
        """Return the verb and the rest of the next line that is not a PING; answer PINGs.

        Raises:
            AskFailed: the server sends -ERR, or the connection ends.
        """
        while True:
            verb, _, line = self._line().partition(b" ")
            if verb == b"PING":
                self._send(b"PONG\r\n")
            elif verb == b"-ERR":
                raise AskFailed(self._refusal(printable(line.decode("utf-8", "replace")).strip("'")))
            else:
                return verb, line

    def _refusal(self, text: str) -> str:
        if text.startswith(("Authorization Violation", "Authentication", "Permissions Violation")):
            return f"{self.address} refuses: {text}: {self._fix}"
        return f"{self.address} refuses: {text}"

    def _line(self) -> bytes:
        while b"\n" not in self._read:
            if len(self._read) > LINE_SIZE_MAX:
                raise AskFailed(f"{self.address} is not the client port of a NATS server: {WHERE}")
            self._receive()
        line, _, self._read = self._read.partition(b"\n")
        return line.rstrip(b"\r")

    def _take(self, size: int) -> bytes:
        if size > ANSWER_SIZE_MAX:
            raise AskFailed(f"{self.address} announces an answer of {size:,} bytes")
        while len(self._read) < size:
            self._receive()
        taken, self._read = self._read[:size], self._read[size:]
        return taken

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise NoAnswer(
                f"{self.address} sends nothing: is it the client port of a NATS server? {WHERE}"
            ) from None
        except OSError as error:
            raise AskFailed(f"{self.address}: {error.strerror or error}") from None
        if not data:
            raise AskFailed(f"{self.address} closed the connection")
        self._read += data

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise AskFailed(f"{self.address}: {error.strerror or error}") from None

    def _object(self, text: bytes) -> dict[str, object]:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise AskFailed(f"{self.address} sends no JSON object: is it a NATS server?")
        return found


def _seed(text: str) -> bytes:
    seed = seed_bytes(text, USER)
    if seed is None:
        raise AskFailed("the key is not the seed of a user: it begins with SU")
    return seed
