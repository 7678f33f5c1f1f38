"""The login of an operating command, read from its flags or from the variables that the `nats` command reads.

Other users of the machine see the arguments of a process, so a password is better in a file or a variable.

Source: nats.docs "NATS CLI", environment variables.
"""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

from pyjs.base.errors import reason_of
from pyjs.operating.connection import AskFailed, Login
from pyjs.server.system.config_file import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

STDIN = "-"
SECRET_SIZE_MAX = 64 << 10  # bytes of a password in a file
KINDS = ("creds", "nkey", "user", "token")  # of logins; of several, the first is used
LOGIN_FLAGS = (*KINDS, "password", "password-file")
VARIABLES = {
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "user": "NATS_USER",
    "token": "NATS_TOKEN",
    "password": "NATS_PASSWORD",
}


def read_login(options: Mapping[str, str], environment: Mapping[str, str]) -> Login | None:
    """Return the login in the flags, otherwise the login in the variables, or None if neither contains one.

    Raises:
        AskFailed: flags contradict each other, or a file cannot be read or is not a credentials file.
    """
    given = {name: options[name] for name in LOGIN_FLAGS if options.get(name)}
    set_before = {name: text for name, key in VARIABLES.items() if (text := environment.get(key, ""))}
    found = given if any(name in given for name in KINDS) else {**set_before, **given}
    kind = next((name for name in KINDS if name in found), "")
    if kind != "user" and ("password" in given or "password-file" in given):
        raise AskFailed("a password needs a user: add --user NAME")
    if kind == "creds":
        jwt, seed = _blocks(_text(found["creds"]), found["creds"])
        return Login(jwt=jwt, seed=seed)
    if kind == "nkey":
        return Login(seed=_text(found["nkey"]).strip())
    if kind == "user":
        return Login(found["user"], _password(given, set_before.get("password", "")))
    return Login(token=found["token"]) if kind else None


def _password(given: Mapping[str, str], otherwise: str) -> str:
    if "password" in given and "password-file" in given:
        raise AskFailed("--password and --password-file are given: keep one of the two")
    if "password-file" in given:
        return _secret(given["password-file"])
    return given.get("password", otherwise)


def _secret(path: str) -> str:
    """Return the password in the first line of a file, or of standard input if `path` is "-".

    If standard input is a terminal, the user is prompted for the password.

    Raises:
        AskFailed: the line is empty or too long, or cannot be read.
    """
    if path == STDIN and sys.stdin.isatty():
        return getpass.getpass("Password: ")
    try:
        if path == STDIN:
            line = sys.stdin.readline(SECRET_SIZE_MAX + 1)
        else:
            with open(path, encoding="utf-8") as file:
                line = file.readline(SECRET_SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is not text"
        raise AskFailed(f"--password-file {path}: {reason}") from None
    secret = line.rstrip("\r\n")
    if not secret or len(line) > SECRET_SIZE_MAX:
        fault = (
            "its first line is empty"
            if not secret
            else f"its first line has more than {SECRET_SIZE_MAX} bytes"
        )
        raise AskFailed(f"--password-file {path}: {fault}")
    return secret


def _text(path: str) -> str:
    try:
        return read_file(path)
    except OSError as error:
        raise AskFailed(f"{path}: {error.strerror}") from None


def _blocks(text: str, path: str) -> tuple[str, str]:
    """Return the token and the seed of a credentials file: the lines after the two BEGIN lines.

    Raises:
        AskFailed: the string does not have exactly two BEGIN lines.
    """
    lines = [line.strip() for line in text.splitlines()]
    found = [lines[at + 1] for at, line in enumerate(lines[:-1]) if line.startswith("-----BEGIN ")]
    if len(found) != 2:
        raise AskFailed(f"{path} is not a credentials file: it has a token and a seed")
    return found[0], found[1]
