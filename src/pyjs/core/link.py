"""What a session needs of its transport. The shell implements it over a socket, a test over a list of bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection."""

    ip: str
    port: int
    kind: str = "nats"  # nats | websocket | in_process


class Link:
    """The writing half of a connection."""

    def write(self, data: bytes) -> None:
        """Queue `data` for sending."""
        raise NotImplementedError("a Link subclass sends the bytes")

    def write_all(self, pieces: list[bytes]) -> None:
        """Queue each of `pieces` for sending, in this order; nobody changes them."""
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        """Close once everything written has been sent."""

    def abort(self) -> None:
        """Close at once; unsent output is dropped."""

    def pending_size(self) -> int:
        """Return how many written bytes have not been sent yet."""
        return 0

    def pause_reading(self) -> None:
        """Take no more input until resume_reading."""

    def resume_reading(self) -> None:
        """Take input again."""
