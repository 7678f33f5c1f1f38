"""SIGHUP: read the configuration again and apply what may change while the server runs.

All or nothing: if one option that changed cannot be applied, the old configuration stays active. Lines as
nats-server 2.15.1.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyjs.base.gotext import duration_text, size_text
from pyjs.config.errors import ConfigError
from pyjs.config.load import Change, changes, reload_options
from pyjs.server import files
from pyjs.server.logging import configured_logger

if TYPE_CHECKING:
    from pyjs.config.options import Options
    from pyjs.server.server import Server

FAILED = "Failed to reload server configuration: "
NO_FILE = "can only reload config when a file is provided using -c or --config"
LOG_OPTIONS = (
    "debug",
    "trace",
    "trace_verbose",
    "logtime",
    "logtime_utc",
    "log_file",
    "log_size_limit",
    "log_max_num",
)
WITHOUT_VALUE = {
    "authorization.user": "authorization username",
    "authorization.password": "authorization password",
    "authorization.token": "authorization token",
    "authorization.users": "authorization users",
    "authorization.default_permissions": "authorization default permissions",
    "accounts": "accounts",
    "server_tags": "tags",
    "server_metadata": "metadata",
    "jetstream.enabled": "JetStream",
}
RENAMED = {
    "authorization.timeout_ns": "authorization timeout",
    "jetstream.max_memory": "JetStream max_mem_store",
    "jetstream.max_storage": "JetStream max_file_store",
}


class ReloadRefused(Exception):
    """The new configuration cannot be applied; the text says why."""


def reload(server: Server) -> None:
    """Apply the configuration file as it is now, or say why not."""
    try:
        new, changed = _read(server.options)
    except (ReloadRefused, ConfigError) as error:
        server.log.error(FAILED + str(error))
        return
    old = server.options
    server.apply_options(new)
    names = {change.name for change in changed}
    if names.intersection(LOG_OPTIONS):
        server.change_log(configured_logger(new))
    for change in changed:
        _log_change(server, change)
    _apply_files(server, old, names)
    if "max_connections" in names:
        _close_surplus(server)
    for session in list(server.node.sessions.values()):
        session.reauthorize()
    server.driver.wake()
    server.log.info(f"Reloaded server configuration ({new.config_digest})")


def _read(old: Options) -> tuple[Options, list[Change]]:
    if old.config_path is None:
        raise ReloadRefused(NO_FILE)
    try:
        new = reload_options(old, read_file, os.environ)
    except OSError as error:
        raise ReloadRefused(f"open {old.config_path}: {error.strerror}") from None
    changed = changes(old, new)
    for change in changed:
        if not change.reloadable:
            values = f"old={_shown(change.name, change.old)}, new={_shown(change.name, change.new)}"
            raise ReloadRefused(f"config reload not supported for {change.name}: {values}")
    return new, changed


def read_file(path: str) -> str:
    """Return the text of a configuration file; bytes that are no UTF-8 are kept as they are."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name.endswith("_ns"):
        return duration_text(value)
    if isinstance(value, int) and name.startswith("jetstream.max_"):
        return size_text(value)
    return str(value)


def _log_change(server: Server, change: Change) -> None:
    if change.name in WITHOUT_VALUE:
        server.log.info(f"Reloaded: {WITHOUT_VALUE[change.name]}")
    elif change.name == "no_fast_producer_stall":
        server.log.info(f"Reloaded: fast producers will {'not ' if change.new else ''}be stalled")
    else:
        name = RENAMED.get(change.name, change.name.removesuffix("_ns"))
        server.log.info(f"Reloaded: {name} = {_shown(change.name, change.new)}")


def _apply_files(server: Server, old: Options, names: set[str]) -> None:
    new = server.options
    if "pid_file" in names and new.pid_file:
        try:
            files.write_pid_file(new.pid_file)
        except OSError as error:
            server.log.error(f"Failed to write pidfile: {error}")
    if "ports_file_dir" in names:
        if old.ports_file_dir:
            files.remove_ports_file(old.ports_file_dir)
        server.write_ports_file()


def _close_surplus(server: Server) -> None:
    """Close connections, the newest first, until the new max_connections is kept."""
    sessions = list(server.node.sessions.values())
    surplus = sessions[max(0, server.options.max_connections) :]
    for session in reversed(surplus):
        session.close("Maximum Connections Exceeded", "maximum connections exceeded")
    if surplus:
        server.log.info(f"Closed {len(surplus)} connections to fall within max_connections")
