"""The output of a server, cut into frames.

A frame is a plain dict, so that a recording is JSON: it has `op` and the fields of that verb. Header blocks are only
parsed if composing them again gives the same bytes; payloads are parsed if they are JSON objects or arrays. Bytes
that are not a frame become, together with all bytes after them, one `garbage` frame.
"""

from __future__ import annotations

import json
import re
from typing import Any

Frame = dict[str, Any]

_STATUS = re.compile(r"^(NATS/1\.0)(?: (\d{3}))?(?: (.*))?$")


class FrameReader:
    """Parses the server's output into frames; the bytes may arrive in any pieces."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes."""
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def rest(self) -> Frame | None:
        """Return the incomplete last frame of a closed connection, or None."""
        return {"op": "garbage", "bytes": _text(self._buffer)} if self._buffer else None

    def _next(self) -> Frame | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return None
        line = self._buffer[:end]
        words = line.split(b" ")
        if words[0] in (b"MSG", b"HMSG"):
            return self._message(words, end + 2)
        self._buffer = self._buffer[end + 2 :]
        return _control(line)

    def _message(self, words: list[bytes], start: int) -> Frame | None:
        sizes = 2 if words[0] == b"HMSG" else 1
        numbers = words[-sizes:]
        if len(words) not in (3 + sizes, 4 + sizes) or not all(n.isdigit() for n in numbers):
            return self._give_up()
        total = int(numbers[-1])
        header_size = int(numbers[0]) if sizes == 2 else 0
        if len(self._buffer) < start + total + 2:
            return None
        body = self._buffer[start : start + total]
        if self._buffer[start + total : start + total + 2] != b"\r\n" or header_size > total:
            return self._give_up()
        self._buffer = self._buffer[start + total + 2 :]
        frame: Frame = {"op": _text(words[0]), "subject": _text(words[1]), "sid": _text(words[2])}
        if len(words) == 4 + sizes:
            frame["reply"] = _text(words[3])
        if sizes == 2:
            frame["headers"] = headers(body[:header_size])
        frame["payload"] = payload(body[header_size:])
        return frame

    def _give_up(self) -> Frame:
        frame = {"op": "garbage", "bytes": _text(self._buffer)}
        self._buffer = b""
        return frame


def headers(block: bytes) -> dict[str, Any]:
    """Return the parts of a header block, or its text if it is not in the usual form."""
    text = _text(block)
    lines = text.split("\r\n")
    match = _STATUS.match(lines[0])
    pairs = [line.split(": ", 1) for line in lines[1:-2]]
    if not match or any(len(pair) != 2 for pair in pairs):
        return {"raw": text}
    first = " ".join(part for part in match.groups() if part is not None)
    again = "\r\n".join([first, *(": ".join(pair) for pair in pairs), "", ""])
    if again != text:
        return {"raw": text}
    return {"version": match[1], "status": match[2], "description": match[3], "fields": pairs}


def payload(body: bytes) -> Any:
    """Return the parsed value of a JSON object or array under `json`, any other payload as text."""
    if body[:1] in (b"{", b"["):
        try:
            return {"json": json.loads(body)}
        except ValueError:
            pass
    return {"text": _text(body)}


def _control(line: bytes) -> Frame:
    op, _, rest = line.partition(b" ")
    if op == b"INFO":
        text = rest.rstrip(b" ")
        try:
            return {"op": "INFO", "info": json.loads(text), "tail": _text(rest[len(text) :])}
        except ValueError:
            return {"op": "garbage", "bytes": _text(line)}
    if op == b"-ERR":
        return {"op": "-ERR", "text": _text(rest)}
    if line in (b"PING", b"PONG", b"+OK"):
        return {"op": _text(line)}
    return {"op": "garbage", "bytes": _text(line)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
