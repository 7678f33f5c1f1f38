"""The interface of a transport for its session: `server/` has sockets, tests have lists of bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """The client's end of a connection."""

    ip: str
    port: int
    kind: str = "nats"  # nats | websocket | in_process


class Link:
    """The writing half of a connection."""

    def write(self, data: bytes) -> None:
        """Queue `data` for sending."""
        raise NotImplementedError("a Link subclass sends the bytes")

    def write_all(self, pieces: list[bytes]) -> None:
        """Queue each of `pieces` for sending, in this order; they must not change."""
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        """Close after everything written was sent."""

    def abort(self) -> None:
        """Close at once; unsent output is dropped."""

    def pending_size(self) -> int:
        """Return the number of written bytes that are not sent yet."""
        return 0

    def pause_reading(self) -> None:
        """Take no more input until resume_reading."""

    def resume_reading(self) -> None:
        """Take input again."""
