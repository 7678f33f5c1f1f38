"""One encrypted byte stream without a socket; it converts records to plain bytes, and plain bytes to records.

The signature in a handshake takes up to some milliseconds, so `continue_handshake` runs in a thread (OpenSSL
releases the GIL); meanwhile, no other method may be called. If the client presents no certificate, the last
step of TLS 1.3 is short (`is_short`). After the handshake, the work is done on the loop: 16 KiB take microseconds.

Source: https://docs.python.org/3/library/ssl.html#memory-bio-support.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.config.tls_names import IANA_NAMES
from pyjs.core.link import Shown, TlsPeer

if TYPE_CHECKING:
    from typing import Any

READ_SIZE = 256 * 1024
TLS_1_3 = "TLSv1.3"
RECORD_MAX = 16_384 + 256 + 5
# bytes of records without data that a client may send: more than one incomplete record
IDLE_MAX = 2 * RECORD_MAX
# bytes of records allowed per byte of data, on average; a record with one byte of data has 23 to 85
SEALED_MAX = 64
HEAD_SIZE = 5  # bytes of a record's head: type, version, size
APPLICATION_RECORD = 0x17  # the type of every encrypted record of TLS 1.3


class TlsEnded(Exception):
    """Raised when the client has ended the TLS stream with a close_notify."""


class TlsAbused(Exception):
    """Raised when the client has sent too many records without data, such as key updates."""


class TlsChannel:
    """The server side of one TLS stream; the other side is called the client, even on a route."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.handshake_done = False
        self._shown = Shown()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._asks = context.verify_mode is not ssl.CERT_NONE
        self._fed = b""  # records since the handshake, for `unseal`
        self._credit = IDLE_MAX  # bytes of records without data that may still arrive
        self._sealed = False  # the output has contained an encrypted record
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def feed(self, records: bytes) -> None:
        """Add received records."""
        if self.handshake_done:
            self._fed += records
        else:
            self._incoming.write(records)

    def take_output(self) -> bytes:
        """Return the records to send, and remove them from the channel."""
        output = self._outgoing.read()
        self._sealed = self._sealed or _has_sealed(output)
        return output

    @property
    def is_short(self) -> bool:
        """Whether the rest of the handshake is short, that is, without key exchange and signature."""
        return self._sealed and not self._asks and self._is_1_3

    @property
    def has_tickets_only(self) -> bool:
        """Whether the handshake is complete, and its pending output has only session tickets.

        These may be sent together with later output.
        """
        return self.handshake_done and self._is_1_3

    @property
    def _is_1_3(self) -> bool:
        return (self._object.cipher() or ("", "", 0))[1] == TLS_1_3

    def continue_handshake(self) -> None:
        """Continue the handshake as far as the input allows; `handshake_done` is true when it is complete.

        Raises:
            ssl.SSLError: the client is refused, or does not use TLS. `take_output` may return an alert to send.
            ValueError: the client's certificate cannot be read.
        """
        with suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self._shown = self._read_certificates()
            self.handshake_done = True
            self._fed = self._incoming.read()  # the bytes after the handshake are for `unseal`

    def seal(self, data: bytes) -> bytes:
        """Return the pending records, followed by records with `data`."""
        self._object.write(data)
        return self._outgoing.read()

    def unseal(self) -> bytes:
        """Return the plain bytes of all complete records that were fed.

        Raises:
            TlsEnded: the client sent a close_notify, and all bytes before it were returned.
            TlsAbused: there were too many records for the amount of data in them.
            ssl.SSLError: a record is damaged, or belongs to another stream.
        """
        pieces: list[bytes] = []
        more = self._read_into(pieces)
        fed, self._fed = memoryview(self._fed), b""
        # One record at a time, so that many records without data are noticed early.
        for start in range(0, len(fed) if more else 0, RECORD_MAX):
            portion, count = fed[start : start + RECORD_MAX], len(pieces)
            self._incoming.write(portion)
            more = self._read_into(pieces)
            self._credit += SEALED_MAX * sum(map(len, pieces[count:])) - len(portion)
            self._credit = min(IDLE_MAX, self._credit)
            if self._credit < 0:
                raise TlsAbused("too many records without data")
            if not more:
                break
        if not more and not pieces:
            raise TlsEnded
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_into(self, pieces: list[bytes]) -> bool:
        """Append the plain bytes of complete records to `pieces`.

        Return False if the stream has ended, or if the next call will raise an error.
        """
        try:
            while piece := self._object.read(READ_SIZE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLError:
            if not pieces:
                raise
        return False

    def end(self) -> bytes:
        """Return the pending records, followed by a close_notify."""
        with suppress(ssl.SSLError):  # do not wait for the client's close_notify
            self._object.unwrap()
        return self._outgoing.read()

    def peer(self, *, first: bool) -> TlsPeer:
        """Return the parameters of the handshake; `first` is whether the handshake preceded INFO."""
        name, version, _ = self._object.cipher() or ("", "", 0)
        return TlsPeer(version.removeprefix("TLSv"), IANA_NAMES.get(name, name), first, self._shown)

    def _read_certificates(self) -> Shown:
        own = self._object.getpeercert(binary_form=True)
        if own is None:
            return Shown()
        from pyjs.core.auth.certificates import read_chain

        # A public method since Python 3.13, under the same name; before, only this private object has it.
        inner: Any = getattr(self._object, "_sslobj", None)
        chain = inner.get_unverified_chain() if hasattr(inner, "get_unverified_chain") else None
        if not chain:
            return read_chain((own,))
        return read_chain(tuple(each if isinstance(each, bytes) else _der(each) for each in chain))


def _has_sealed(records: bytes) -> bool:
    """Return whether `records` contains an encrypted record of TLS 1.3."""
    at = 0
    while at + HEAD_SIZE <= len(records):
        if records[at] == APPLICATION_RECORD:
            return True
        at += HEAD_SIZE + int.from_bytes(records[at + HEAD_SIZE - 2 : at + HEAD_SIZE], "big")
    return False


def _der(certificate: Any) -> bytes:
    """Return a certificate of the ssl module as DER."""
    import _ssl

    encoded: bytes = certificate.public_bytes(_ssl.ENCODING_DER)
    return encoded
