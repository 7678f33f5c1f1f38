"""A client of one server on asyncio, which reconnects whenever its connection is lost.

A request without an answer returns None: its outcome is unknown. Answers have the time at which they arrived.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
CONNECT_WAIT_S = 0.5
AGAIN_S = 0.02  # pause between two attempts to connect
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Message:
    """One received message."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    at_ns: int

    @property
    def is_status(self) -> bool:
        """Whether the message is a status of the server, such as 503, and not a message of a client."""
        return self.headers.startswith((b"NATS/1.0 204", b"NATS/1.0 4", b"NATS/1.0 5"))


@dataclass(slots=True)
class Gathering:
    """The answers received so far for one request."""

    ended: asyncio.Future[None]
    expected: int
    sid: bytes = b""  # sid of a separate subscription, whose messages have the subjects of the stream
    messages: list[Message] = field(default_factory=list)

    def end(self) -> None:
        """Stop waiting for answers."""
        if not self.ended.done():
            self.ended.set_result(None)


class Link(asyncio.Protocol):
    """One client of one server."""

    def __init__(self, host: str, port: int, connect: bytes = CONNECT) -> None:
        self._address = host, port
        self._connect = connect
        self._inbox = b"_INBOX.f%d." % next(_numbers)
        self._requests = count(2)  # 1 is the sid of the inbox subscription
        self._gatherings: dict[bytes, Gathering] = {}  # by inbox or sid
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_up = False  # whether the server has answered since the connection was made

    def begin(self) -> None:
        """Connect now, and again whenever the connection is lost."""
        self._task = asyncio.create_task(self._stay())

    async def end(self) -> None:
        """Close the connection and do not reconnect."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._transport is not None:
            self._transport.abort()

    async def request(
        self, subject: bytes, payload: bytes = b"", headers: bytes = b"", wait_s: float = 2.0
    ) -> Message | None:
        """Return the answer, or None if there is none; the outcome of the request is then unknown."""
        found = await self.gather(subject, payload, headers, wait_s)
        return found[0] if found else None

    async def gather(
        self,
        subject: bytes,
        payload: bytes = b"",
        headers: bytes = b"",
        wait_s: float = 2.0,
        expected: int = 1,
        are_deliveries: bool = False,
    ) -> list[Message]:
        """Return `expected` answers, or fewer if a status arrives, the connection is lost, or `wait_s` has passed.

        A consumer's deliveries have the subjects of the stream, so they need a subscription of their own.
        """
        if not self.is_up or self._transport is None:
            return []
        loop = asyncio.get_running_loop()
        number = next(self._requests)
        inbox = b"%b%d" % (self._inbox, number)
        gathering = Gathering(loop.create_future(), expected)
        request = framed(subject, inbox, payload, headers)
        if expected > 1 or are_deliveries:
            gathering.sid = b"%d" % number
            inbox = b"_INBOX.own%b%d" % (self._inbox[7:], number)
            request = b"SUB %b %b\r\n%b" % (inbox, gathering.sid, framed(subject, inbox, payload, headers))
        self._gatherings[gathering.sid or inbox] = gathering
        timer = loop.call_later(wait_s, gathering.end)
        self._transport.write(request)
        try:
            await gathering.ended
        finally:
            timer.cancel()
            self._gatherings.pop(gathering.sid or inbox, None)
            if gathering.sid and self._transport is not None:
                self._transport.write(b"UNSUB %b\r\n" % gathering.sid)
        return gathering.messages

    async def api(self, name: str, body: object = None, wait_s: float = 2.0) -> dict[str, Any]:
        """Return the answer to an API request, or {} if there is no answer."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self.request(f"$JS.API.{name}".encode(), data, wait_s=wait_s)
        if answer is None or not answer.payload:
            return {}
        found: dict[str, Any] = json.loads(answer.payload)
        return found

    def send(self, subject: bytes, payload: bytes) -> None:
        """Publish without waiting for an answer, if there is a connection."""
        if self.is_up and self._transport is not None:
            self._transport.write(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))

    # -- asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Log in; the answer to PING shows that the server responds."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._data = transport, b""
        transport.write(b"%bSUB %b> 1\r\nPING\r\n" % (self._connect, self._inbox))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waits for answers."""
        self.is_up, self._transport = False, None
        for gathering in self._gatherings.values():
            gathering.end()
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        """Handle all complete operations."""
        self._data += data
        at, now_ns = 0, time.monotonic_ns()
        while (end := self._data.find(b"\r\n", at)) >= 0:
            line = self._data[at:end]
            if line.startswith((b"MSG ", b"HMSG ")):
                after = self._message(line, end + 2, now_ns)
                if not after:
                    break
                at = after
                continue
            at = end + 2
            if line == b"PONG":
                self.is_up = True
            elif line == b"PING" and self._transport is not None:
                self._transport.write(b"PONG\r\n")
        self._data = self._data[at:]

    def _message(self, line: bytes, at: int, now_ns: int) -> int:
        """Handle a message; return the position after it, or 0 if it is incomplete."""
        words = line.split()
        is_plain = words[0] == b"MSG"
        end = at + int(words[-1])
        if len(self._data) < end + 2:
            return 0
        gathering = self._gatherings.get(words[1] if words[2] == b"1" else words[2])
        if gathering is not None:
            reply = words[3] if len(words) > (4 if is_plain else 5) else b""
            head = at if is_plain else at + int(words[-2])
            message = Message(words[1], reply, self._data[at:head], self._data[head:end], now_ns)
            gathering.messages.append(message)
            if message.is_status or len(gathering.messages) == gathering.expected:
                gathering.end()
        return end + 2

    async def _stay(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(loop.create_connection(lambda: self, *self._address), CONNECT_WAIT_S)
                await self._lost.wait()
            await asyncio.sleep(AGAIN_S)


def framed(subject: bytes, inbox: bytes, payload: bytes, headers: bytes = b"") -> bytes:
    """Return the PUB or HPUB of a message."""
    if headers:
        sizes = (len(headers), len(headers) + len(payload))
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, inbox, *sizes, headers, payload)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(payload), payload)
