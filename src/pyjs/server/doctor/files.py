"""Checks of the files that the configuration names: permissions of secrets, and validity of certificates."""

from __future__ import annotations

import os
import stat
import time
from calendar import timegm
from typing import TYPE_CHECKING

from pyjs.server.doctor.findings import ok, warn
from pyjs.server.tls.context import certificate_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding

DAYS_MIN = 30
DAY_S = 86_400


def check_files(options: Options) -> Iterator[Finding]:
    """Check the configuration file, keys and certificates."""
    if options.config_path:
        yield from _check_secret("config", options.config_path, has_secrets(options))
    if options.tls.key_file:
        yield from _check_secret("key", options.tls.key_file, True)
    ends = certificate_ends(options.tls)
    if ends:
        yield _check_certificate(ends)


def has_secrets(options: Options) -> bool:
    """Return whether the configuration has passwords or tokens."""
    single = options.authorization
    users = [user for account in options.accounts.values() for user in account.users]
    return bool(single.password or single.token or any(user.password for user in [*single.users, *users]))


def _check_secret(subject: str, path: str, is_secret: bool) -> Iterator[Finding]:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # the file was readable a moment ago
    if is_secret and mode & (stat.S_IROTH | stat.S_IWOTH):
        yield warn(
            subject, f"{path} can be read by every user ({stat.filemode(mode)})", f"chmod o-rwx {path}"
        )
    else:
        yield ok(subject, path)


def _check_certificate(ends: str) -> Finding:
    days = (timegm(time.strptime(ends[:19], "%Y-%m-%dT%H:%M:%S")) - time.time()) / DAY_S
    text = f"valid until {ends}"
    if days < 0:
        return warn(
            "certificate", f"expired: {text}", "clients refuse it: get a new one, then reload the server"
        )
    if days < DAYS_MIN:
        return warn("certificate", text, "get a new one, then reload the server")
    return ok("certificate", text)
