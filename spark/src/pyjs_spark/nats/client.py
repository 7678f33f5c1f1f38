"""One blocking connection to a NATS server, for requests and for pull deliveries, which a decoder turns into columns.

It uses no event loop and no thread: while a call waits for an answer, it reads bytes and answers the server's PINGs.
Frames of the decoder's subscription go to the decoder in bulk; this module parses all others one by one.

    MSG <subject> <sid> [reply] <size>\\r\\n<payload>\\r\\n
    HMSG <subject> <sid> [reply] <headers size> <size>\\r\\n<headers><payload>\\r\\n

Source: nats.docs "Client Protocol"; ADR-4 (headers and statuses).
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pyjs_spark import strict_json
from pyjs_spark.decode.wire import NEED_MORE, OTHER, Pumped
from pyjs_spark.errors import (
    AccessDenied,
    ApiError,
    BadCredentials,
    ConnectionLost,
    NoResponders,
    ProtocolError,
    PublishFailed,
    RequestTimeout,
    ServerUnreachable,
    SparkError,
)
from pyjs_spark.nats.byte_stream import LINE_MAX
from pyjs_spark.nats.login import log_in
from pyjs_spark.nats.settings import Address, ConnectSettings, parse_address

REQUEST_SID = 1
SHOWN = 200  # number of characters of a server's text that an error shows
DIGITS_MAX = 9  # maximum number of digits of a size; no server accepts larger messages
PAYLOAD_MAX = 64 << 20  # default maximum size of a message in bytes; a server may announce a larger one
# maximum bytes of a frame in addition to the payload: its line, and headers that a server adds
OVERHEAD = 1 << 20
NOBODY = 503


@dataclass(frozen=True, slots=True)
class Reply:
    """One message that is not a pull delivery: an answer or a status."""

    sid: int
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes

    @property
    def status(self) -> int:
        """The status code in the first line of the headers, or 0 if there is none."""
        code = self.headers[8:12].strip()[:3]
        return int(code) if self.headers.startswith(b"NATS/1.0 ") and code.isdigit() else 0

    @property
    def description(self) -> str:
        """The text after the status code."""
        return self.headers.partition(b"\r\n")[0][12:].strip().decode("utf-8", "replace")

    def header(self, name: bytes) -> bytes:
        """Return the last value of a header, or b"" if there is none."""
        _, found, rest = self.headers.rpartition(b"\r\n%b:" % name)
        return rest.partition(b"\r\n")[0].strip() if found else b""


class Client:
    """One connection. It does not reconnect by itself: after ConnectionLost, call reconnect()."""

    def __init__(self, settings: ConnectSettings) -> None:
        """Connect to one of the servers in the settings.

        Raises:
            ServerUnreachable: no server accepts the connection.
            BadCredentials: a secret, seed or certificate cannot be used.
        """
        self.settings = settings
        self.info: dict[str, Any] = {}
        self.pid = os.getpid()  # a connection belongs to the process that opened it
        self.connections = 0  # number of connections so far; a subscription belongs to one of them
        # number of requests so far; each request has a number, by which late answers are recognised
        self._asked = 0
        self._last_sid = REQUEST_SID
        self._pongs = 0
        self._inbox = b""
        self.reconnect()

    def __repr__(self) -> str:
        return f"Client({self._stream.address})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection cannot be pickled; send its ConnectSettings and connect there")

    def reconnect(self) -> None:
        """Connect again; earlier subscriptions are lost.

        Raises:
            ServerUnreachable: no server accepts the connection.
            BadCredentials: a secret, seed or certificate cannot be used.
        """
        if self._inbox:
            self.close()
        addresses = [parse_address(server) for server in self.settings.servers]
        random.shuffle(addresses)
        tried: list[str] = []
        for address in addresses:
            if self._try(address, tried):
                return
        text = "; ".join(tried) or "the list is empty"
        raise ServerUnreachable(
            f"no server can be used: {text}. Check the option servers and the credentials"
        )

    @property
    def begun(self) -> int:
        """The number of bytes of an incomplete frame that have been received."""
        return self._stream.end - self._stream.start

    @property
    def address(self) -> str:
        """The server in use."""
        return str(self._stream.address)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def ping(self, timeout_s: float = 2.0) -> None:
        """Send PING, and wait for its PONG.

        Messages that arrive before the PONG are dropped.

        Raises:
            ConnectionLost: the PONG did not arrive in time, or the connection ended.
        """
        wanted = self._pongs + 1
        self._stream.send(b"PING\r\n")
        deadline_s = time.monotonic() + timeout_s
        while self._pongs < wanted:
            if (end := self._stream.line_end(deadline_s)) < 0:
                raise ConnectionLost(f"{self.address}: no answer to a PING in {timeout_s:g} s")
            self._frame(end)

    def new_inbox(self) -> bytes:
        """Return a subject to which nothing subscribes yet; it changes with each subscribe()."""
        return b"%b.p.%d" % (self._inbox, self._last_sid)

    def subscribe(self, subject: bytes) -> int:
        """Subscribe to a subject; return the subscription's id (sid)."""
        self._last_sid += 1
        self._stream.send(b"SUB %b %d\r\n" % (subject, self._last_sid))
        return self._last_sid

    def unsubscribe(self, sid: int) -> None:
        """End a subscription; messages of it that arrive later are dropped."""
        self._stream.send(b"UNSUB %d\r\n" % sid)

    def publish(self, subject: bytes, payload: bytes = b"", reply: bytes = b"", headers: bytes = b"") -> None:
        """Send one message. `headers` is a whole header block, including the line NATS/1.0."""
        sizes = b"%d %d" % (len(headers), len(headers) + len(payload)) if headers else b"%d" % len(payload)
        line = b" ".join(filter(None, (b"HPUB" if headers else b"PUB", subject, reply, sizes)))
        self._stream.send(b"".join((line, b"\r\n", headers, payload, b"\r\n")))

    def send(self, data: bytes | memoryview) -> None:
        """Send complete frames unchanged.

        Raises:
            ConnectionLost: the connection broke.
        """
        self._stream.send(data)

    def request(
        self, subject: str, payload: bytes = b"", *, headers: bytes = b"", timeout_s: float | None = None
    ) -> Reply:
        """Send a request and wait for its answer.

        Raises:
            NoResponders: the subject has no subscriber.
            RequestTimeout: there is no answer within `timeout_s` seconds; the default is the timeout in the settings.
            AccessDenied: the user may not publish to the subject.
            ConnectionLost: the connection ended.
        """
        inbox = self._ask(subject, payload, headers)
        wait_s = self.settings.timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + wait_s
        while True:
            answer = self.next_message(deadline_s)
            if answer is None:
                text = f"{self.address}: no answer from {subject} in {wait_s:g} s; is JetStream on there?"
                raise RequestTimeout(text)
            if answer.subject == inbox:
                break
        if answer.status == NOBODY and not answer.payload:
            text = f"{self.address}: nobody answers {subject}; is JetStream on, and the API prefix right?"
            raise NoResponders(text)
        return answer

    def request_many(self, subject: str, payload: bytes, more: int, timeout_s: float) -> list[Reply]:
        """Send a request, and return its answers: stored messages, followed by the status that ends them.

        Raises:
            RequestTimeout: no answer came for `timeout_s` seconds, or more than `more` messages came.
        """
        inbox = self._ask(subject, payload, b"")
        answers: list[Reply] = []
        while len(answers) <= more:
            answer = self.next_message(time.monotonic() + timeout_s)
            if answer is None:
                break
            if answer.subject == inbox:
                answers.append(answer)
                if answer.status:  # stored messages have no status
                    return answers
        raise RequestTimeout(
            f"{self.address}: {subject} did not end its answer after {len(answers)} messages"
        )

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a JetStream API request, and return its answer.

        `name` is the subject without the API prefix.

        Raises:
            ApiError: the answer is an error.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        answer = self.request(f"{self.settings.api_prefix}.{name}", payload)
        found = self._parsed(answer.payload or b"{}")
        error = found.get("error")
        if isinstance(error, dict):
            text = f"{name}: {error.get('description', '')}"
            raise ApiError(int(error.get("code", 0)), int(error.get("err_code", 0)), text)
        return found

    def pump(self, decoder: Pumped, deadline_s: float) -> Reply | None:
        """Pass received bytes to `decoder` until the decoder stops, or until a message arrives that it cannot decode.

        Such a message is returned if it belongs to the decoder's subscription. If the decoder stopped, None is
        returned, and `decoder.state` has the reason. The state is NEED_MORE if the deadline passed.
        """
        stream = self._stream
        while True:
            stream.start = decoder.decode(stream.data, stream.start, stream.end)
            if decoder.state == NEED_MORE:
                self._check_need(decoder.need)
                if not stream.fill(decoder.need, deadline_s):
                    return None
            elif decoder.state != OTHER:
                return None
            else:
                message = self._frame(stream.line_end(deadline_s))
                if message is not None and message.sid == decoder.sid:
                    return message

    def next_message(self, deadline_s: float) -> Reply | None:
        """Return the next message of any subscription, or None at the deadline."""
        while (end := self._stream.line_end(deadline_s)) >= 0:
            message = self._frame(end)
            if message is not None:
                return message
        return None

    def next_view(self, sid: int, deadline_s: float) -> tuple[bytes, memoryview] | None:
        """Return subject and payload of the next message of a subscription, or None at the deadline.

        The payload is not copied: it is valid until the next receive. Frames of other subscriptions are
        parsed or dropped as in other reads.

        Raises:
            NoResponders: the message is status 503.
        """
        stream, mark = self._stream, b"%d" % sid
        while (end := stream.line_end(deadline_s)) >= 0:
            words = bytes(stream.data[stream.start : end]).split()
            if len(words) in (4, 5) and words[0].upper() == b"MSG" and words[2] == mark:
                (size,) = self._numbers(words, words[-1:])
                return words[1], self._body(end + 2 - stream.start, size)
            message = self._frame(end)
            if message is not None and message.sid == sid and message.status == NOBODY:
                raise NoResponders(f"{self.address}: nobody answers on {message.subject.decode()}")
        return None

    def _check_need(self, need: int) -> None:
        """Raise ProtocolError if a frame would be larger than any server sends."""
        said = self.info.get("max_payload")
        most = max(PAYLOAD_MAX, min(said, 10**DIGITS_MAX) if isinstance(said, int) else 0) + OVERHEAD
        if need > most:
            raise ProtocolError(f"{self.address}: the server sent a frame of {need} bytes, above {most}")
        stream = self._stream
        if need <= LINE_MAX or stream.data.find(b"\r\n", stream.start, stream.end) >= 0:
            return
        raise ProtocolError(f"{self.address}: a protocol line of more than {LINE_MAX} bytes")

    def _fill_message(self, need: int) -> None:
        """Wait for the rest of a message while its bytes arrive, even after the deadline.

        Raises:
            ConnectionLost: the connection ended, or became silent inside the message.
            ProtocolError: the message is larger than any server sends.
        """
        self._check_need(need)
        if not self._stream.fill_whole(need, self.settings.timeout_s):
            raise ConnectionLost(f"{self.address}: the connection fell silent inside a message")

    def _ask(self, subject: str, payload: bytes, headers: bytes) -> bytes:
        self._asked += 1
        inbox = b"%b.%d" % (self._inbox, self._asked)
        self.publish(subject.encode(), payload, inbox, headers)
        return inbox

    def _try(self, address: Address, tried: list[str]) -> bool:
        inbox = b"_INBOX.%032x" % random.getrandbits(128)
        try:
            self._stream, self.info = log_in(address, self.settings)
            self._stream.send(b"SUB %b.* %d\r\n" % (inbox, REQUEST_SID))
        except (OSError, SparkError, ValueError) as error:
            if isinstance(error, BadCredentials):
                raise  # every other server would also refuse these credentials
            tried.append(f"{address}: {_reason(error)}")
            return False
        self.connections += 1
        self._inbox = inbox
        self._last_sid = REQUEST_SID
        return True

    def _frame(self, end: int) -> Reply | None:
        """Read one frame, whose line ends at `end`, and return it if it is a message.

        Raises:
            ProtocolError: the frame is not valid.
            AccessDenied, ConnectionLost, PublishFailed: the frame is an error of the server.
        """
        stream = self._stream
        line = bytes(stream.data[stream.start : end])
        words = line.split()
        verb = words[0].upper() if words else b""
        if verb in (b"MSG", b"HMSG"):
            return self._message(words, verb == b"HMSG", end + 2 - stream.start)
        stream.start = end + 2
        if verb == b"PING":
            stream.send(b"PONG\r\n")
        elif verb == b"PONG":
            self._pongs += 1
        elif verb == b"INFO":
            self.info = self._parsed(line[5:])
        elif verb == b"-ERR":
            self._refused(line[5:].decode("utf-8", "replace").strip("' "))
        elif verb not in (b"+OK", b""):
            raise ProtocolError(f"{self.address}: the server sent {line[:60]!r}, which is no NATS protocol")
        return None

    def _message(self, words: list[bytes], has_headers: bool, head_size: int) -> Reply:
        rest = 2 if has_headers else 1  # number of sizes at the end of the line
        texts = [words[2], *words[-rest:]] if len(words) in (3 + rest, 4 + rest) else [b""]
        sid, *sizes = self._numbers(words, texts)
        headers_size, size = sizes if has_headers else (0, *sizes)
        if headers_size > size:
            raise self._no_frame(words)
        reply = words[3] if len(words) == 4 + rest else b""
        body = bytes(self._body(head_size, size))
        return Reply(sid, words[1], reply, body[:headers_size], body[headers_size:])

    def _numbers(self, words: list[bytes], texts: list[bytes]) -> list[int]:
        """Return the numbers in a line of a message.

        Raises:
            ProtocolError: a string in `texts` is not a number.
        """
        if not all(text.isdigit() and len(text) <= DIGITS_MAX for text in texts):
            raise self._no_frame(words)
        return [int(text) for text in texts]

    def _no_frame(self, words: list[bytes]) -> ProtocolError:
        return ProtocolError(f"{self.address}: the server sent {b' '.join(words)[:60]!r}")

    def _body(self, head_size: int, size: int) -> memoryview:
        """Wait for the rest of a message; return its headers and payload, which are valid until the next receive."""
        stream = self._stream
        self._fill_message(head_size + size + 2)
        at = stream.start + head_size
        stream.start = at + size + 2
        return memoryview(stream.data)[at : at + size]

    def _parsed(self, said: bytes) -> dict[str, Any]:
        """Return the JSON object in an answer of the server. Raises ProtocolError if it is not one."""
        try:
            return strict_json.an_object(said)
        except ValueError:
            raise ProtocolError(
                f"{self.address}: the server sent {said[:60]!r}, which is no JSON object"
            ) from None

    def _refused(self, said: str) -> NoReturn:
        # a server's text contains the whole subject
        text = said if len(said) <= SHOWN else f"{said[:SHOWN]}..."
        if any(limit in text.lower() for limit in ("maximum control line", "maximum payload")):
            self.close()
            raise PublishFailed(
                f"{self.address}: the server takes no such message: {text}. Shorten its subject or payload, or raise "
                "max_control_line or max_payload of the server"
            )
        if "permissions violation" in text.lower():
            raise AccessDenied(f"{self.address}: {text}; the user of this connection needs that permission")
        self.close()
        raise ConnectionLost(f"{self.address}: the server ended the connection: {text}")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error)


_connected: dict[ConnectSettings, Client] = {}


def connected(settings: ConnectSettings) -> Client:
    """Return this process's connection for `settings`.

    The connection is new, or has just answered a PING. A forked process opens its own connection, since two processes
    must not read from one socket.
    """
    client = _connected.pop(settings, None)
    if client is not None and client.pid == os.getpid():
        try:
            client.ping()
        except SparkError:
            client.reconnect()
    else:
        client = Client(settings)
    _connected[settings] = client
    return client
