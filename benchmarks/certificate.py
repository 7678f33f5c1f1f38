"""A certificate for rows with TLS: EC P-256 for 127.0.0.1, made once by the `cryptography` package."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=3650)
DIRECTORY = Path(__file__).resolve().parent.parent / "build" / "benchmarks"


def with_certificate(config: str) -> str:
    """Return the configuration of a row; `{cert}` and `{key}` in it become the files of a certificate."""
    if "{cert}" not in config:
        return config.format()
    cert, key = make_certificate(DIRECTORY)
    return config.format(cert=cert, key=key)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate and its key in `directory`; they are made if they are missing."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    if cert.exists() and key.exists():
        return cert, key
    directory.mkdir(parents=True, exist_ok=True)
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + VALID)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(private, hashes.SHA256())
    )
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return cert, key
