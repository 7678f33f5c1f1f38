"""The TLS context created from the files of a `tls` block.

A context is created when the server starts, and by a reload. If a file is unusable, no part of the new context is
used. A reload does not affect connected clients.

Source: https://docs.python.org/3/library/ssl.html; tests/conformance/test_tls.py.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import reason_of
from pyjs.base.gotext import time_text
from pyjs.config.tls_names import CURVES, SUITES

if TYPE_CHECKING:
    from pyjs.config.options import Options, TlsOptions
    from pyjs.core.link import TlsPeer

# For TLS 1.2, if `cipher_suites` is not set: authenticated encryption with forward secrecy.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsFailed(Exception):
    """Raised when a certificate or key is unusable; the exception's message names the file and the reason."""


class TlsSettings(NamedTuple):
    """The TLS settings for new connections."""

    options: TlsOptions
    context: ssl.SSLContext  # created from the files
    # For the monitoring port, which requests no certificates; None: it has no TLS.
    pages: ssl.SSLContext | None

    def objection(self, peer: TlsPeer) -> str:
        """Return the reason to refuse a client with these handshake parameters, or "" if the client is accepted."""
        if not self.options.pinned_certs:
            return ""
        own = peer.shown.chain[0].spki_sha256 if peer.shown.chain else ""
        return "" if own in self.options.pinned_certs else "certificate not pinned"


def read_tls_settings(options: Options) -> TlsSettings | None:
    """Read the files of the `tls` block and return its settings, or None if it names no certificate.

    Raises:
        TlsFailed: a file is unreadable or invalid.
    """
    if not options.tls.certificates:
        return None
    return tls_settings(options.tls, with_pages=bool(options.monitoring.https_port))


def tls_settings(tls: TlsOptions, *, with_pages: bool = False) -> TlsSettings:
    """Read the files of one `tls` block and return its settings.

    With `with_pages`, the settings include a context for the monitoring port.

    Raises:
        TlsFailed: a file is unreadable or invalid.
    """
    try:
        pages = _context(tls, verify=False) if with_pages else None
        return TlsSettings(tls, _context(tls, verify=tls.verify), pages)
    except TlsFailed as error:
        raise TlsFailed(f"{tls.place or 'tls'}: {error}") from None


def _context(options: TlsOptions, *, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[options.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    chosen = [SUITES[name] for name in options.cipher_suites if name in SUITES]
    context.set_ciphers(":".join(chosen) or CIPHERS)
    if options.curve:
        context.set_ecdh_curve(CURVES[options.curve])
    for certificate, key in options.certificates:
        _load_chain(context, certificate, key)
    # as in nats-server; OpenSSL would send two, each of which takes a tenth of a handshake
    context.num_tickets = 1
    if verify:
        _load_authorities(context, options.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    elif options.ca_file:
        # Loaded only to find errors in them. In the context in use, OpenSSL would read a directory of authorities in
        # every handshake, to complete the chain of the server's own certificate.
        _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), options.ca_file)
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context for outgoing connections, with the certificates of `options`.

    Without a `ca_file` in `options`, the authorities are those of the system.

    Raises:
        TlsFailed: a file is unreadable or invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS[options.min_version]
    for certificate, key in options.certificates:
        _load_chain(context, certificate, key)
    if options.ca_file:
        _load_authorities(context, options.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    for path in (certificate, key):
        _read(path)  # raises an error that names the missing file; OpenSSL's does not
    try:
        # Without a password, OpenSSL would request a pass phrase at the terminal.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        raise TlsFailed(f"the key in {key} has a pass phrase; write one without") from None
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise TlsFailed(
                f"the key in {key} is not that of the certificate in {certificate}; give one pair"
            ) from None
        raise TlsFailed(
            f"{certificate} and {key} are no PEM files of a certificate and its key; give PEM files"
        ) from None


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    if not path:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    _read(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise TlsFailed(f"{path} holds no certificate in PEM form; give a PEM file") from None


class _Encrypted(Exception):
    """Raised when OpenSSL requests a pass phrase, because the key is encrypted."""


def _no_password() -> str:
    raise _Encrypted


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsFailed(f"open {path}: {reason_of(error)}; give a file that the server can read") from None


def certificate_ends(options: TlsOptions) -> str:
    """Return the expiry time of the first certificate as text, or "" if there is none or it cannot be read."""
    if not options.certificates:
        return ""
    from cryptography import x509  # imported lazily, since it takes 30 ms and only one line of /varz needs it

    try:
        certificate = x509.load_pem_x509_certificate(_read(options.certificates[0][0]))
    except (TlsFailed, ValueError):
        return ""
    return time_text(int(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000)
