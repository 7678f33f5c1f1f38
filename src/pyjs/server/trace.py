"""The protocol of one connection as log lines: every operation and payload, in and out (-V).

Parses the bytes a second time, separately from the session, so tracing costs nothing while it is off. Secrets in
CONNECT are not shown. If tracing starts in the middle of a payload, the rest of that payload may be shown as
operations.

Lines as nats-server 2.15.1: `<<- [PUB foo 5]`, `<<- MSG_PAYLOAD: ["hello"]`, `->> [PONG]`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyjs.base.gotext import printable, quoted

if TYPE_CHECKING:
    from pyjs.base.log import Log
    from pyjs.core.session import ClientSession

IN, OUT = "<<-", "->>"
WITH_PAYLOAD = (b"PUB", b"HPUB", b"MSG", b"HMSG")
SECRETS = re.compile(r'("(?:pass|auth_token|jwt|sig|proxy_sig)"\s*:\s*")(?:[^"\\]|\\.)*"')
LINE_SIZE_MAX = 64 * 1024  # bytes; a longer line is not an operation


class Tracer:
    """One direction of one connection."""

    def __init__(self, session: ClientSession, log: Log, direction: str, size_max: int) -> None:
        self._session = session
        self._log = log
        self._direction = direction
        self._size_max = size_max  # bytes shown of a payload; 0: all
        self._rest = b""  # an incomplete line or payload
        self._payload_size = -1  # size of the next payload; -1: a line is next

    def trace(self, data: bytes) -> None:
        """Log the operations that `data` completes."""
        self._rest += data
        while self._take_one():
            pass

    def _take_one(self) -> bool:
        if self._payload_size >= 0:
            return self._take_payload()
        line, end, rest = self._rest.partition(b"\n")
        if not end:
            if len(self._rest) > LINE_SIZE_MAX:
                self._rest = b""
            return False
        self._rest = rest
        self._line(line.removesuffix(b"\r"))
        return True

    def _take_payload(self) -> bool:
        size = self._payload_size
        if len(self._rest) < size + 2:
            return False
        payload, self._rest = self._rest[:size], self._rest[size + 2 :]
        self._payload_size = -1
        if size:
            shown = payload[: self._size_max] if self._size_max else payload
            dots = "..." if len(shown) < size else ""
            text = quoted(shown.decode("utf-8", "replace"))
            self._say(f'MSG_PAYLOAD: [{text[:-1]}{dots}"]')
        return True

    def _line(self, line: bytes) -> None:
        words = line.split()
        if not words:
            return
        verb = words[0].upper()
        text = " ".join(
            [verb.decode("latin-1"), *line[len(words[0]) :].decode("utf-8", "surrogateescape").split()]
        )
        if verb == b"CONNECT":
            text = SECRETS.sub(r'\1[REDACTED]"', text)
        elif verb == b"+OK":
            text = "OK"
        elif verb == b"-ERR":
            text = text.replace("'", "")
        self._say(f"[{printable(text)}]")
        if verb in WITH_PAYLOAD and words[-1].isdigit():
            self._payload_size = int(words[-1])

    def _say(self, text: str) -> None:
        self._log.trace(f"{self._session} - {self._direction} {text}")
