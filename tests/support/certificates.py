"""A certificate authority and certificates that it signed, made for a test within milliseconds."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

COMMON, ORGANISATION, UNIT = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
)
LOCAL = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as files and as objects."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    cert_file: Path
    key_file: Path


class Authority:
    """A certificate authority; it writes its certificates to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = self.issue("ca", subject(("ca", COMMON)))

    @property
    def ca_file(self) -> Path:
        """Return the file with the certificate that clients and servers trust."""
        return self.root.cert_file

    def issue(self, name: str, owner: x509.Name, *others: x509.GeneralName) -> Issued:
        """Return a certificate for `owner` with alternative names `others`; the first is the authority's own."""
        key = ec.generate_private_key(ec.SECP256R1())
        root: Issued | None = getattr(self, "root", None)
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(owner)
            .issuer_name(owner if root is None else root.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(root is None, None), critical=True)
        )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        certificate = builder.sign(key if root is None else root.key, hashes.SHA256())
        files = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Issued(certificate, key, *files)


def subject(*parts: tuple[str, x509.ObjectIdentifier]) -> x509.Name:
    """Return a distinguished name with its parts in this order."""
    return x509.Name([x509.NameAttribute(oid, value) for value, oid in parts])
