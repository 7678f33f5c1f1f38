"""The protocol of one connection as log lines: every operation and payload, in and out.

With -V, all connections are traced; a request traces one connection for some time (`ConnectionTrace`). The bytes are
parsed a second time, separately from the session, so tracing costs nothing while it is off: a connection checks
`trace_on` of its log, and a traced connection has a log of its own. Each byte is examined once, however small the
reads are.

Passwords, tokens, JWTs and seeds of nkeys are not shown. If tracing starts in the middle of an operation, the rest of
this operation is skipped; but if its payload has lines that look like operations, they may be shown as operations.

Lines have the form of nats-server 2.15.1: `<<- [PUB foo 5]`, `<<- MSG_PAYLOAD: ["hello"]`, `->> [PONG]`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyjs.base.gotext import printable, quoted
from pyjs.base.log import Log
from pyjs.wire.secrets import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.link import TraceLimits
    from pyjs.core.session import ClientSession

IN, OUT = "<<-", "->>"
WITH_PAYLOAD = (b"PUB", b"HPUB", b"MSG", b"HMSG")
# A line that begins an operation, if tracing begins in the middle of the connection.
OPERATION = re.compile(
    rb"(?:(?:PING|PONG|\+OK) *|(?:CONNECT|INFO) *\{.*|-ERR '.*'|UNSUB \S+(?: \d+)?|SUB \S+(?: \S+){1,2}"
    rb"|H?(?:PUB|MSG) \S+ (?:\S+ )*\d+)\r?",
    re.IGNORECASE,
)
LINE_SIZE_MAX = 64 * 1024  # bytes; a longer line is not an operation
SIZE_DIGITS_MAX = 10  # of a payload's size


class Tracer:
    """A logger of the operations that one connection receives, or of those that it sends."""

    def __init__(
        self, session: ClientSession, log: Log, direction: str, size_max: int, *, amid: bool = False
    ) -> None:
        """Create the tracer.

        `direction` is `IN` for bytes from the client, or `OUT` for bytes to the client. `size_max` is the maximum
        number of bytes of a payload that are logged; 0 means no limit. With `amid`, the first bytes may belong to an
        operation that began before the trace.
        """
        self._session = session
        self._log = log
        self._direction = direction
        self._size_max = size_max  # bytes shown of a payload; 0: all
        self._seeking = amid  # lines are skipped until one is an operation
        self._line = b""  # an incomplete line
        self._payload = bytearray()  # the shown part of an incomplete payload
        self._payload_size = 0  # bytes of that payload
        self._left = 0  # bytes of the payload and its line end that are still to come; 0: a line is next

    def trace(self, data: bytes) -> None:
        """Log the operations and payloads that `data` completes; stop if the trace ends meanwhile."""
        at = 0
        while at < len(data) and self._log.trace_on:
            at = self._take_payload(data, at) if self._left else self._take_line(data, at)

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        line = self._line + data[at : end or len(data)]
        self._line = b""
        if end:
            self._complete(line[:-1].removesuffix(b"\r"))
        elif len(line) <= LINE_SIZE_MAX:
            self._line = line
        else:
            self._seeking = True  # the rest of the line may have secrets
        return end or len(data)

    def _take_payload(self, data: bytes, at: int) -> int:
        taken = min(self._left, len(data) - at)
        shown_max = self._payload_size if not self._size_max else min(self._size_max, self._payload_size)
        room = shown_max - len(self._payload)
        self._payload += data[at : at + min(room, taken)]
        self._left -= taken
        if not self._left and self._payload_size:
            dots = "..." if len(self._payload) < self._payload_size else ""
            text = quoted(without_secrets(self._payload.decode("utf-8", "replace")))
            self._payload.clear()
            self._say(f'MSG_PAYLOAD: [{text[:-1]}{dots}"]')
        return at + taken

    def _complete(self, line: bytes) -> None:
        words = line.split()
        if not words or (self._seeking and not OPERATION.fullmatch(line)):
            return
        self._seeking = False
        verb = words[0].upper()
        text = " ".join(
            [verb.decode("latin-1"), *line[len(words[0]) :].decode("utf-8", "surrogateescape").split()]
        )
        if verb == b"+OK":
            text = "OK"
        elif verb == b"-ERR":
            text = text.replace("'", "")
        else:
            text = without_secrets(text)
        self._say(f"[{printable(text)}]")
        if verb in WITH_PAYLOAD and words[-1].isdigit() and len(words[-1]) <= SIZE_DIGITS_MAX:
            self._payload_size = int(words[-1])
            self._left = self._payload_size + 2

    def _say(self, text: str) -> None:
        self._log.trace(f"{self._session} - {self._direction} {text}")


class ConnectionTrace(Log):
    """The log of a connection that is traced for some time; it counts the traced lines."""

    def __init__(
        self, session: ClientSession, log: Log, limits: TraceLimits, end: Callable[[], object]
    ) -> None:
        """Begin the trace; all lines are written to `log`, and `end` is called after the last permitted line."""
        self.trace_on = True
        self._name = str(session)  # stored, since a session that ends has lost its user
        self._log = log
        self._end = end
        self._lines_left = limits.lines
        self._lines = 0
        size_max = limits.payload_size
        self.tracers = (
            Tracer(session, self, IN, size_max, amid=True),
            Tracer(session, self, OUT, size_max, amid=True),
        )
        log.info(f"{self._name} - Trace begins, for {limits.seconds} s or {limits.lines} lines")

    @property
    def debug_on(self) -> bool:  # type: ignore[override]
        """Whether the server's log shows details of connections."""
        return self._log.debug_on

    def write(self, level: str, text: str) -> None:
        """Write one line to the server's log; after the last line that the limits allow, end the trace."""
        self._log.write(level, text)
        if level == "TRC":
            self._lines += 1
            if self._lines == self._lines_left:
                self._end()

    def end(self) -> None:
        """Stop the trace, and log the number of traced lines."""
        self.trace_on = False
        self._log.info(f"{self._name} - Trace ends after {self._lines} lines")
