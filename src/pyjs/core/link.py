"""The interface of a transport for its session: `server/` implements it with sockets, tests with lists of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# A reload has closed the client because of its user. nats-server names the reason as if the client had left.
RELOADED = "Closed By Reload"


def shown_reason(reason: str) -> str:
    """Return nats-server's name for the reason why a connection ended; /whyz shows the exact reason."""
    return "Client Closed" if reason == RELOADED else reason


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Credentials from outside CONNECT, such as cookies; each is used only if CONNECT lacks the same field."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""


class Peer(NamedTuple):
    """The client's end of a connection."""

    ip: str
    port: int
    kind: str = "nats"  # nats | websocket | in_process
    forwarded_for: str = ""  # the client address given by an HTTP proxy, for log lines
    credentials: Credentials | None = None
    disguised: bool = False  # the address is that of a proxy, which has not sent the client's address yet
    proxy: str = ""  # the public key of the trusted proxy through which the client connects

    def name_of(self, cid: int) -> str:
        """Return the name of the connection `cid` in log lines."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        word = "wid" if self.kind == "websocket" else "cid"
        return f"{self._before}{host}:{self.port} - {word}:{cid}"

    @property
    def _before(self) -> str:
        first = self.forwarded_for
        return (f"[{first}]/" if ":" in first else f"{first}/") if first else ""


class ShownCertificate(NamedTuple):
    """One certificate of a client, as /connz shows it."""

    subject: str
    spki_sha256: str  # of the public key, in hex
    cert_sha256: str


class Shown(NamedTuple):
    """The certificates of a client: the chain, and the names in the client's own certificate."""

    chain: tuple[ShownCertificate, ...] = ()
    names: tuple[str, ...] = ()
    pem: tuple[str, ...] = ()  # the chain, for a service that decides about the client


class TlsPeer(NamedTuple):
    """The result of a TLS handshake: version, cipher, and the certificates of the client."""

    version: str  # "1.3"
    cipher_suite: str  # as IANA names it
    first: bool  # the handshake preceded INFO
    shown: Shown  # certificates of the client


class TraceLimits(NamedTuple):
    """The limits on the trace of one connection; the trace ends after `seconds` or after `lines`."""

    seconds: int
    lines: int
    payload_size: int  # bytes shown of each payload


class Link:
    """The interface through which a session writes to its connection, and pauses reading from it."""

    tls: TlsPeer | None = None  # None: the connection is not encrypted, or not yet
    closed_reason = ""  # reason why the session ended; the session sets it before it calls `close`
    end_reason = (
        "Client Closed"  # the reason if the client sends no more; "Read Error" if the connection broke
    )
    portion = 0  # maximum bytes of one write, if each write takes noticeable time; 0: no limit
    ready = True  # False: another write is in progress

    def write(self, data: bytes) -> None:
        """Queue `data` for sending."""
        raise NotImplementedError("a Link subclass sends the bytes")

    def write_all(self, pieces: list[bytes]) -> None:
        """Queue each of `pieces` for sending, in this order; the caller must not change them afterwards."""
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        """Close after all written output has been sent."""

    def abort(self) -> None:
        """Close at once; unsent output is dropped."""

    def pending_size(self) -> int:
        """Return the number of written bytes that are not sent yet."""
        return 0

    def pause_reading(self) -> None:
        """Stop reading until resume_reading."""

    def resume_reading(self) -> None:
        """Resume reading."""

    @property
    def is_traced(self) -> bool:
        """Whether a trace that `start_trace` began is still running."""
        return False

    def start_trace(self, limits: TraceLimits) -> bool:
        """Log the protocol of this connection until one of `limits` is reached; a running trace is replaced.

        Return False if this kind of link has no trace.
        """
        return False

    def stop_trace(self) -> bool:
        """End the trace of this connection; return whether there was one."""
        return False
