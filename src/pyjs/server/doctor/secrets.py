"""The passwords, tokens and keys of a configuration, and the files in which they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyjs.config.options import Options


def secret_files(options: Options, texts: Mapping[str, str]) -> set[str]:
    """Return the paths of the configuration files that contain secrets.

    `texts` maps the path of each configuration file to its text. A secret that is found in no file, in no environment
    variable and in no command line option is assumed to be in the main configuration file, written with escapes.
    """
    found: set[str] = set()
    known = {*os.environ.values(), *map(str, options.flags.values())}
    for spellings in _secrets(options):
        inside = {path for path, text in texts.items() if any(each in text for each in spellings)}
        found |= inside
        if not inside and known.isdisjoint(spellings) and options.config_path:
            found.add(options.config_path)
    return found


def _secrets(options: Options) -> Iterator[tuple[str, ...]]:
    """Yield, for each secret that is set, the spellings that it may have in a file."""
    single, login, websocket = (
        options.authorization,
        options.monitoring.login,
        options.websocket.authorization,
    )
    values = [single.password, single.token, websocket.password, websocket.token]
    values += [options.jetstream.key, options.jetstream.prev_key, options.cluster.authorization.password]
    values += [] if login is None else [login.password, login.token]
    users = [user for account in options.accounts.values() for user in account.users]
    values += [user.password for user in (*single.users, *users)]
    yield from ((value,) for value in values if value)
    for route in options.cluster.routes:
        value = route.password or route.user  # a user without a password is a token
        if value:
            yield value, quote(value, safe="")
