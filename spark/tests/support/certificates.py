"""A certificate authority, and the certificates of a server and a client, made for one test."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def make_certificates(folder: Path) -> None:
    """Write ca.pem, server.pem, server.key (for 127.0.0.1 and nats.test), client.pem and client.key."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _signed(
        "Test CA", ca_key.public_key(), "Test CA", ca_key, x509.BasicConstraints(ca=True, path_length=None)
    )
    (folder / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    names = x509.SubjectAlternativeName(
        [x509.DNSName("nats.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(name, key.public_key(), "Test CA", ca_key, names)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def _signed(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(extension, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
