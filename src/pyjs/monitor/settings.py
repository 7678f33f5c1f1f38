"""The configuration of the server by key: the `config` object of /varz?config=1.

This module knows nothing of the effects of keys. Names are those of the configuration file, sizes are bytes, and
durations are nanoseconds as elsewhere in /varz. A password, a token and the login in a URL are replaced by
stars. nats-server has no such object; without the argument, /varz has the same fields on both servers.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.config.declared import Block
from pyjs.config.options import RouteUrl, TrustedProxy
from pyjs.monitor.json_text import JsonDict, JsonValue

if TYPE_CHECKING:
    from pyjs.config.options import Options

HIDDEN = "***"
SECRETS = ("password", "token", "key", "prev_key")
INTERNAL = "place"  # field with the position of a block in its file; not a key
LOGIN = re.compile(r"://\S*@")  # the login in a URL, up to the last @, since a password may contain an @


def settings(options: Options) -> JsonDict:
    """Return every key of the option tables with its value or default."""
    return _block("", options)


def _block(path: str, target: object) -> JsonDict:
    from pyjs.config.tables import TABLES  # imported lazily: only for this request

    shown: JsonDict = {}
    for key in TABLES[path].keys:
        block, _, attr = key.attrs[0].rpartition(".")
        if block in TABLES and any(attr in each.attrs for each in TABLES[block].keys) and block:
            continue  # another spelling of a key in the same block
        inner = f"{path}.{key.name}".lstrip(".")
        value = attrgetter(key.attrs[0])(target)
        if inner in TABLES and value is not None:
            shown[key.name] = _block(inner, value)
        elif key.name != "listen":  # host and port are shown under their own keys
            shown[key.name] = _plain(key.name, value)
    return shown


def _plain(name: str, value: object) -> JsonValue:
    """Return the value of the option `name` as JSON, with secrets replaced with stars."""
    if name in SECRETS:
        return HIDDEN if value else ""
    if isinstance(value, Block):
        return list(value.names)  # the names; there may be ten thousand
    if isinstance(value, tuple):
        return [_plain("", element) for element in value]
    if isinstance(value, dict):
        return {each: _plain(each if isinstance(inner, str) else "", inner) for each, inner in value.items()}
    if isinstance(value, TrustedProxy):
        return {"key": value.key}  # a public key
    if isinstance(value, RouteUrl) and value.user and not value.password:
        return {"host": value.host, "port": value.port, "user": HIDDEN, "password": ""}  # the user is a token
    if is_dataclass(value):
        names = [each.name for each in fields(value) if each.name != INTERNAL]
        return {name.removesuffix("_ns"): _plain(name, getattr(value, name)) for name in names}
    if isinstance(value, str):
        return LOGIN.sub(f"://{HIDDEN}@", value)
    assert value is None or isinstance(value, int)
    return value
