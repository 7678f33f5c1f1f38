"""The options of a server inside a program, made from a configuration file, keyword arguments, a model or Options.

Keyword arguments override the file and the model. If there is neither a file nor Options, the server listens on a
free port of 127.0.0.1 and has JetStream; its store directory is a temporary one unless the keywords or the model name
another directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from pyjs.config.errors import ConfigError, Place
from pyjs.config.load import load_options
from pyjs.config.options import Options
from pyjs.config.values import ConfigMap, Data, Entry, Value
from pyjs.server.system.config_file import read_file

if TYPE_CHECKING:
    from pyjs.models import ServerOptions  # imported lazily: pyjs.models needs pydantic

# The path of a configuration file, Options, or a model.
Source: TypeAlias = "str | os.PathLike[str] | Options | ServerOptions"

PLACE = Place("options", 0, 0)  # stands for the place of a key in messages
ALONE: Mapping[str, object] = {"host": "127.0.0.1", "port": -1, "jetstream": True}
ANY_PORT = -1
SCALARS = (bool, int, float, str, datetime)


def options_from(
    source: Source | None, keys: Mapping[str, object], alone: Mapping[str, object] = ALONE
) -> Options:
    """Return the options for a source and keywords.

    `alone` maps keys to their default values, which are not used with a file or Options.

    Raises:
        ConfigError: the file or a key is invalid; the exception's message states the place, the cause and a fix.
        TypeError: both Options and keys were given.
    """
    if isinstance(source, Options):
        if keys:
            raise TypeError(f"either Options or keys, not both: {', '.join(keys)}")
        return source
    # a model; found by its method, so that its class need not be imported
    if source is not None and hasattr(source, "model_dump"):
        keys = {**source.model_dump(exclude_unset=True, exclude_none=True), **keys}
    elif source is not None:
        return load_options(os.fspath(source), read_file, os.environ, {}, entries_from(keys))
    if keys.get("port") == 0:  # in a file, 0 means the default port; in Python, any free port
        keys = {**keys, "port": ANY_PORT}
    return load_options(None, read_file, os.environ, {}, entries_from({**alone, **keys}))


def wants_scratch(source: Source | None, options: Options) -> bool:
    """Return whether the server needs a temporary store directory.

    It needs one if it has JetStream, and there is neither a file nor Options nor a `store_dir`.
    """
    is_named = isinstance(source, str | os.PathLike | Options)
    return not is_named and options.jetstream.enabled and not options.jetstream.store_dir


def entries_from(keys: Mapping[str, object]) -> ConfigMap:
    """Return `keys` as entries of a configuration file.

    Raises:
        ConfigError: a value has a type that a configuration file cannot contain.
    """
    entries = ConfigMap()
    for name, data in keys.items():
        entries.put(Entry(name, PLACE, _value(name, data)))
    return entries


def _value(name: str, data: object) -> Value:
    return Value(_data(name, data), PLACE)


def _data(name: str, data: object) -> Data:
    if isinstance(data, SCALARS):
        return data
    if isinstance(data, os.PathLike):
        return os.fsdecode(data)
    if isinstance(data, Mapping):
        return entries_from(data)
    if isinstance(data, list | tuple):
        return [_value(name, element) for element in data]
    cause = f'"{name}" is a value of type {type(data).__name__}, which a configuration cannot hold'
    raise ConfigError.at(PLACE, cause, "use a string, number, bool, path, list or dict")
