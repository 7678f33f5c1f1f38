"""Reload (SIGHUP): read the configuration again, and apply the keys that may change while the server runs.

A reload is applied as a whole: if a changed option cannot be applied, the old configuration remains active. Log lines
are those of nats-server 2.15.1.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyjs.base.errors import reason_of
from pyjs.base.gotext import duration_text, size_text
from pyjs.config.load import Change, changes, reload_options
from pyjs.config.options import Options
from pyjs.server.system import files
from pyjs.server.system.config_file import read_file

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.base.log import Log

NO_FILE = "can only reload config when a file is provided using -c or --config"
LOG_OPTIONS = (
    "debug trace trace_verbose logtime logtime_utc log_format log_file log_size_limit log_max_num".split()
)
WITHOUT_VALUE = {
    "authorization.user": "authorization username",
    "authorization.password": "authorization password",
    "authorization.token": "authorization token",
    "authorization.users": "authorization users",
    "authorization.default_permissions": "authorization default permissions",
    "accounts": "accounts",
    "mappings": "mappings",
    "server_tags": "tags",
    "server_metadata": "metadata",
    "jetstream.enabled": "JetStream",
    "jetstream.declared.streams": "declared streams",
    "jetstream.declared.consumers": "declared consumers",
    "jetstream.declared.kv": "declared key-value buckets",
    "jetstream.declared.object_store": "declared object stores",
}
RENAMED = {
    "authorization.timeout_ns": "authorization timeout",
    "tls.allow_plain": "allow_non_tls",
    "jetstream.max_memory": "JetStream max_mem_store",
    "jetstream.max_storage": "JetStream max_file_store",
}


class ReloadRefused(Exception):
    """Raised when the new configuration cannot be applied; the exception's message is the reason."""


def read_again(old: Options) -> tuple[Options, list[Change]]:
    """Reread the configuration file of `old`, and return the new options and the changes.

    Raises:
        ReloadRefused: a changed key requires a restart, there is no configuration file, or the file cannot be read.
        ConfigError: the configuration is invalid.
    """
    if old.config_path is None:
        raise ReloadRefused(NO_FILE)
    try:
        new = reload_options(old, read_file, os.environ)
    except OSError as error:
        raise ReloadRefused(f"open {old.config_path}: {error.strerror}") from None
    if old.worker is not None:
        from pyjs.config.ports.workers import place_worker  # imported lazily: only workers need it

        new = place_worker(new, old.worker)
    changed = changes(old, new)
    for change in changed:
        if not change.reloadable:
            values = f"old={_shown(change.name, change.old)}, new={_shown(change.name, change.new)}"
            raise ReloadRefused(f"config reload not supported for {change.name}: {values}")
    return new, changed


def rewrite_files(old: Options, new: Options, log: Log, write_ports_file: Callable[[], None]) -> None:
    """Rewrite the pid file and the ports file if the path of either has changed.

    The ports file at its old path is removed. An error with the pid file is logged.
    """
    if (old.pid_file, old.ports_file_dir) == (new.pid_file, new.ports_file_dir):
        return
    try:
        if new.pid_file:
            files.write_pid_file(new.pid_file)
    except OSError as error:
        log.error(f"Failed to write pidfile: {reason_of(error)}")
    if old.ports_file_dir:
        files.remove_ports_file(old.ports_file_dir)
    write_ports_file()


def refuse_reload(loop: asyncio.AbstractEventLoop) -> asyncio.Future[str]:
    """Return a completed future with the error message for a reload of a single worker.

    All workers must have the same configuration.
    """
    refused = loop.create_future()
    refused.set_result(
        "a server with workers reloads all of them at once: send SIGHUP to it, or use pyjs-server --signal reload"
    )
    return refused


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name.endswith("_ns"):
        return duration_text(value)
    if isinstance(value, int) and name.startswith("jetstream.max_"):
        return size_text(value)
    return str(value)


def _keys(proxies: object) -> list[object]:
    assert isinstance(proxies, dict)
    return [each["key"] for each in proxies["trusted"]]


def _changed_keys(change: Change) -> str:
    """Return a string that lists the removed and added keys, or states that only their order has changed."""
    before, after = _keys(change.old), _keys(change.new)
    gone = [f'"{key}"' for key in before if key not in after]
    added = [f'"{key}"' for key in after if key not in before]
    said = [(gone, "removed"), (added, "added")]
    return ", ".join(f"[{' '.join(keys)}] were {what}" for keys, what in said if keys) or "have another order"


def change_line(change: Change) -> str:
    """Return the log line of an applied change, without secrets."""
    if change.name in WITHOUT_VALUE:
        return f"Reloaded: {WITHOUT_VALUE[change.name]}"
    if change.name == "proxies":
        return f"Reloaded: proxies trusted keys {_changed_keys(change)}"
    if change.name == "no_fast_producer_stall":
        return f"Reloaded: fast producers will {'not ' if change.new else ''}be stalled"
    if change.name == "tls":
        return f"Reloaded: tls = {'enabled' if change.new else 'disabled'}"
    name = RENAMED.get(change.name, change.name.removesuffix("_ns"))
    return f"Reloaded: {name} = {_shown(change.name, change.new)}"
