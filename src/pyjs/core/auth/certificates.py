"""The names in a client's certificate, for login and for monitoring.

Pure functions of DER bytes that OpenSSL has checked already. Names are in the order in which nats-server tries them:
e-mail addresses, DNS names and URIs of the subject alternative names, then the subject itself.

Source: RFC 5280; RFC 4514 for the text of subjects; tests/conformance/test_tls.py.
"""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pyjs.core.link import Shown, ShownCertificate

SUBJECT_SIZE_MAX = 1024  # maximum characters of a shown subject
SHOWN_MAX = 8  # certificates of a chain


def read_chain(chain: tuple[bytes, ...]) -> Shown:
    """Return the shown fields of the first SHOWN_MAX certificates of `chain`, and the names in the first certificate.

    The certificates are DER; the first is the client's own.

    Raises:
        ValueError: a certificate is invalid, although OpenSSL accepted it.
    """
    if not chain:
        return Shown()
    parsed = [x509.load_der_x509_certificate(each) for each in chain[:SHOWN_MAX]]
    pem = tuple(each.public_bytes(serialization.Encoding.PEM).decode() for each in parsed)
    return Shown(tuple(_shown(each) for each in parsed), _names(parsed[0]), pem)


def _shown(certificate: x509.Certificate) -> ShownCertificate:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    whole = certificate.public_bytes(serialization.Encoding.DER)
    subject = certificate.subject.rfc4514_string()[:SUBJECT_SIZE_MAX]
    return ShownCertificate(subject, hashlib.sha256(key).hexdigest(), hashlib.sha256(whole).hexdigest())


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    names: list[str] = []
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        extension = None
    if extension is not None:
        for kind in (x509.RFC822Name, x509.DNSName, x509.UniformResourceIdentifier):
            names += extension.get_values_for_type(kind)
    return (*names, certificate.subject.rfc4514_string())


NameKey = tuple[tuple[tuple[str, str], ...], ...]


def name_key(name: str) -> NameKey | None:
    """Return a key for comparing distinguished names without regard to the order of their parts.

    Return None if `name` is invalid. Attributes of one part (`CN=joe+OU=A`) are not separated, and a part that occurs
    twice counts twice. Otherwise a certificate could be mistaken for that of another user.
    """
    if "=" not in name:
        return None
    try:
        parsed = x509.Name.from_rfc4514_string(name)
    except ValueError:
        return None
    parts = (
        tuple(sorted((each.oid.dotted_string, str(each.value)) for each in part)) for part in parsed.rdns
    )
    return tuple(sorted(parts))
