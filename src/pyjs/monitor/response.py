"""An answer of the monitoring port: status, headers and body; independent of HTTP."""

from __future__ import annotations

from dataclasses import dataclass

JSON_HEADERS = (("Access-Control-Allow-Origin", "*"), ("Content-Type", "application/json"))
TEXT_HEADERS = (("Content-Type", "text/plain; charset=utf-8"),)
HTML_HEADERS = (("Content-Type", "text/html; charset=utf-8"),)


@dataclass(frozen=True, slots=True)
class Response:
    """One answer of the monitoring port."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON_HEADERS
    rest: tuple[bytes, ...] = ()  # bytes that follow `body`; not joined, since that would take too long

    @property
    def size(self) -> int:
        """The size of `body` and `rest` in bytes."""
        return len(self.body) + sum(map(len, self.rest))


def text_response(status: int, text: str) -> Response:
    """Return a plain-text answer, for example an error."""
    return Response(status, text.encode(), TEXT_HEADERS)
