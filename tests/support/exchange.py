"""Clients of several accounts, and their frames with the values masked that differ from run to run."""

from __future__ import annotations

import json
import re

from tests.support.raw import RawClient

_MASKS = (
    (rb"_R_\.[\w.]+", b"_R_"),
    (rb'"(rtt|service|system|total)":\d+', rb'"\1":0'),
    (rb'"(start|timestamp|created|time|ts)":"[^"]+"', rb'"\1":"T"'),
    (rb'"id":("[^"]+"|\d+)', b'"id":0'),
    (rb'"server":"[^"]+"', b'"server":"S"'),
    (rb"(HMSG \S+ \S+(?: [^\s\d]\S*)?) +\d+ \d+\r", rb"\1 n\r"),
    (rb"(MSG \S+ \S+(?: [^\s\d]\S*)?) +\d+\r", rb"\1 n\r"),
    (rb"(\$JS\.ACK\.\w+\.\w+\.\d+\.\d+\.\d+)\.\d+", rb"\1.T"),
)


def masked(data: bytes) -> str:
    """Return `data` with tokens, times, ids and sizes masked."""
    for pattern, mask in _MASKS:
        data = re.sub(pattern, mask, data)
    return data.decode()


class AccountClient(RawClient):
    """A client of the account of `user`; its password is the name."""

    def __init__(self, port: int, user: str, /, inbox: bytes = b"", **fields: object) -> None:
        options = {"user": user, "pass": user, "verbose": False, "headers": True, "no_responders": True}
        text = json.dumps(options | {"protocol": 1} | fields).encode()
        self._kept = b""  # bytes that arrived while `do` waited
        super().__init__(port, connect=b"CONNECT %b\r\n" % text, inbox=inbox or b"_INBOX." + user.encode())
        self.fence()  # the second INFO has arrived

    def do(self, *lines: bytes) -> None:
        """Send lines, and wait until the server has processed them."""
        self.send(b"".join(line + b"\r\n" for line in lines) + b"PING\r\n")
        self._kept += self.read_until(b"PONG\r\n")

    def seen(self) -> str:
        """Return all bytes that have arrived, masked."""
        self.do()
        kept, self._kept = self._kept, b""
        return masked(kept)

    def next(self) -> tuple[str, bytes, str, str]:
        """Return subject, reply, headers and payload of the next message, masked except for the reply."""
        subject, reply, headers, payload = next(self.frames())
        return masked(subject), reply, masked(headers), masked(payload)
