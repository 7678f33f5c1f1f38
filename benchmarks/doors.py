"""Files and ports for rows with special connections: a certificate, an operator with tokens, a WebSocket port.

A configuration may contain {cert} and {key}, the files of a certificate (EC P-256) for 127.0.0.1; {operator}, the
lines for an operator whose tokens are in memory; and {ws_port}, which becomes a port when the server starts. The
driver's arguments may contain {creds}, a user of that operator. The files are created once.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from rows import Row
    from servers import RunningServer

VALID = datetime.timedelta(days=3650)
DIRECTORY = Path(__file__).resolve().parent.parent / "build" / "benchmarks"
TOKENS = DIRECTORY / "tokens"


def config_of(row: Row) -> str:
    """Return the configuration of a row; the files that it names are made if they are missing."""
    names = {"ws_port": "{ws_port}"}
    if "{cert}" in row.config:
        cert, key = make_certificate(DIRECTORY)
        names |= {"cert": str(cert), "key": str(key)}
    if "{operator}" in row.config:
        names["operator"] = make_operator(TOKENS)
    return row.config.format(**names)


def arguments_of(row: Row, server: RunningServer) -> list[str]:
    """Return the driver's arguments for a row, with the port that the row uses."""
    websocket = {"--ws", "--deflate"} & set(row.arguments)
    port = server.ws_port if websocket else server.port
    arguments = [argument.replace("{creds}", str(TOKENS / "alice.creds")) for argument in row.arguments]
    return [*arguments, "--port", str(port)]


def make_operator(directory: Path) -> str:
    """Return the configuration of an operator in `directory`; the operator is made if it is missing."""
    from pyjs.testing.jwt import write_example

    if not (directory / "server.conf").exists():
        write_example(str(directory))
    accounts = sorted((directory / "accounts").glob("*.jwt"))
    preload = "\n".join(f"  {path.stem}: {path.read_text().strip()}" for path in accounts)
    return f'operator: "{directory}/operator.jwt"\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}'


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
