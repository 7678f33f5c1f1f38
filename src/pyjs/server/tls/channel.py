"""One encrypted byte stream without a socket: records in, plain bytes out, and back.

A handshake does a signature that takes up to some milliseconds, so `shake_hands` is made to run in a thread, which
OpenSSL does without the GIL. Meanwhile nobody else may touch the channel. Once it is open, everything else takes
microseconds for each 16 KiB and is done where it happens.

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


class TlsEnded(Exception):
    """The peer has ended the encrypted stream properly."""


class TlsChannel:
    """The server's end."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.shaken = False  # the handshake is over
        self._shown = Shown()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def feed(self, records: bytes) -> None:
        """Take what the peer sent."""
        self._incoming.write(records)

    def take_output(self) -> bytes:
        """Return what is to be sent to the peer."""
        return self._outgoing.read()

    def shake_hands(self) -> None:
        """Go on with the handshake as far as the input allows; afterwards `shaken` says whether it is over.

        Raises:
            ssl.SSLError: the peer is not acceptable, or does not speak TLS. There may be an alert to send.
            ValueError: its certificate cannot be read.
        """
        with suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self._shown = self._read_certificates()
            self.shaken = True

    def seal(self, data: bytes) -> bytes:
        """Return the records that carry `data`, behind what else was to be sent."""
        self._object.write(data)
        return self._outgoing.read()

    def unseal(self) -> bytes:
        """Return the plain bytes of all whole records that were fed.

        Raises:
            TlsEnded: the peer said that nothing follows, and everything before that was returned.
            ssl.SSLError: what was fed is damaged, or not of this stream.
        """
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(READ_SIZE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except ssl.SSLError:
            if pieces:
                return b"".join(pieces)  # the next call raises again
            raise
        if pieces:
            return b"".join(pieces)
        raise TlsEnded

    def end(self) -> bytes:
        """Return the record that tells the peer that nothing follows."""
        with suppress(ssl.SSLError):  # the peer's own farewell is not waited for
            self._object.unwrap()
        return self._outgoing.read()

    def peer(self, *, first: bool) -> TlsPeer:
        """Return what the handshake agreed on; `first`: it came before INFO."""
        name, version, _ = self._object.cipher() or ("", "", 0)
        return TlsPeer(version.removeprefix("TLSv"), IANA_NAMES.get(name, name), first, self._shown)

    def _read_certificates(self) -> Shown:
        own = self._object.getpeercert(binary_form=True)
        if own is None:
            return Shown()
        from pyjs.core.auth.certificates import read_chain

        # Public from Python 3.13 on, under the same name; before, the object below has it.
        inner: Any = getattr(self._object, "_sslobj", None)
        chain = inner.get_unverified_chain() if hasattr(inner, "get_unverified_chain") else None
        if not chain:
            return read_chain((own,))
        return read_chain(tuple(each if isinstance(each, bytes) else _der(each) for each in chain))


def _der(certificate: Any) -> bytes:
    """Return the DER form of a certificate of the ssl module's own type."""
    import _ssl

    encoded: bytes = certificate.public_bytes(_ssl.ENCODING_DER)
    return encoded
