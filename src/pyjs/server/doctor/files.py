"""Checks of the files that the configuration names: permissions of secrets, and validity of certificates."""

from __future__ import annotations

import os
import stat
import time
from calendar import timegm
from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.server.doctor.findings import ok, warn
from pyjs.server.doctor.secrets import secret_files
from pyjs.server.tls.context import certificate_ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyjs.config.options import Options, TlsOptions
    from pyjs.server.doctor.findings import Finding

DAYS_MIN = 30
DAY_S = 86_400


def check_files(options: Options, texts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the configuration files, private keys and certificates, and yield the findings.

    `texts` maps the path of each configuration file to its text.
    """
    secret = secret_files(options, texts)
    if options.config_path:
        yield from _check_secret("config", options.config_path, options.config_path in secret)
    for path in sorted(secret - {options.config_path}):
        yield from _check_secret("config", path, True)
    certificates = _certificates(options)
    for path in dict.fromkeys(tls.key_file for _, tls in certificates):
        yield from _check_secret("key", path, True)
    for subject, tls in certificates:
        ends = certificate_ends(tls)
        if ends:
            yield _check_certificate(subject, ends)


def _certificates(options: Options) -> list[tuple[str, TlsOptions]]:
    """Return the options of each pair of certificate and key, without duplicates, with the name of its port.

    The name of the client port is "". A pair that several ports use has the name of the first of these ports.
    """
    found: dict[tuple[str, str], tuple[str, TlsOptions]] = {}
    ports = ("", options.tls), ("cluster", options.cluster.tls), ("websocket", options.websocket.tls)
    for subject, tls in ports:
        for cert_file, key_file in tls.certificates:
            single = replace(tls, cert_file=cert_file, key_file=key_file, certs=())
            found.setdefault((cert_file, key_file), (subject, single))
    return list(found.values())


def _check_secret(subject: str, path: str, is_secret: bool) -> Iterator[Finding]:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # removed meanwhile: the file was readable a moment ago
    if is_secret and mode & (stat.S_IROTH | stat.S_IWOTH):
        yield warn(
            subject, f"{path} can be read by every user ({stat.filemode(mode)})", f"chmod o-rwx {path}"
        )
    else:
        yield ok(subject, path)


def _check_certificate(port: str, ends: str) -> Finding:
    days = (timegm(time.strptime(ends[:19], "%Y-%m-%dT%H:%M:%S")) - time.time()) / DAY_S
    peers = "other servers" if port == "cluster" else "clients"
    text = f"of {port}: " if port else ""
    text += f"valid until {ends}"
    if days < 0:
        return warn(
            "certificate", f"expired, {text}", f"{peers} refuse it: get a new one, then reload the server"
        )
    if days < DAYS_MIN:
        return warn("certificate", text, "get a new one, then reload the server")
    return ok("certificate", text)
