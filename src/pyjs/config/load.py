"""Loading of checked Options from a file, the environment and the command line.

This module never opens a file (`read` does that) and never starts anything. The order is: the defaults, the file, the
flags, then the checks across several options. All problems are collected, so that one run shows all of them; only a
syntax error ends the run at once.

`reload_options` does the same for a running server; `changes` returns the differences.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.config.errors import ConfigError, Place, Problem, suggestion
from pyjs.config.flags import COMMAND_LINE, apply_flags
from pyjs.config.options import NS_PER_S, SYSTEM_ACCOUNT, Options, Warnings
from pyjs.config.values import ConfigMap, config_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyjs.config.parser import Read
    from pyjs.config.table import Reading


def load_options(
    path: str | None,
    read: Read,
    environ: Mapping[str, str],
    flags: Mapping[str, str | int | bool],
    keys: ConfigMap | None = None,
) -> Options:
    """Return the options from the file at `path`, overridden by `keys` and then by `flags`.

    If `path` is None, there is no file. The `warnings` of the result are probable mistakes and repeated keys.

    Raises:
        ConfigError: the configuration is invalid; the message states the place, cause and fix of each problem.
    """
    options = Options(config_path=path, flags=dict(flags))
    places: dict[str, Place] = {}
    if path is not None or keys:
        places = _load_entries(options, path, read, environ, keys)
    problems = [*apply_flags(options, flags, places), *_check_together(options, places)]
    if problems:
        raise ConfigError(problems)
    return options


def _load_entries(
    options: Options, path: str | None, read: Read, environ: Mapping[str, str], keys: ConfigMap | None
) -> dict[str, Place]:
    """Set `options` from the file at `path`, overridden by `keys`; return the place of each attribute that was set.

    Raises:
        ConfigError: the file cannot be read, or there is a problem in it or in `keys`.
    """
    # Imported lazily: a server configured only by flags needs neither the tables nor the language.
    from pyjs.config.table import Reading, read_block
    from pyjs.config.tables import TOP

    reading = Reading()
    reading.read_file = read
    entries = ConfigMap() if path is None else _load_file(options, path, read, environ, reading)
    for entry in (keys or {}).values():
        entries.put(entry)
    read_block(reading, TOP, entries, options)
    if reading.problems:
        raise ConfigError([*reading.problems, *reading.warnings])
    options.warnings = Warnings(
        mistakes=tuple(str(warning) for warning in reading.warnings),
        repeated=tuple(str(problem) for problem in reading.twice),
    )
    return reading.places


def _load_file(
    options: Options, path: str, read: Read, environ: Mapping[str, str], reading: Reading
) -> ConfigMap:
    """Parse the file at `path`, set `options.config_digest`, and return the entries of the file."""
    from pyjs.config.parser import parse_file

    entries = parse_file(path, read, environ, reading.twice)
    options.config_digest = config_digest(entries)
    if not entries:
        place, fix = Place(path, 1, 1), "write a key, port: 4222 for instance"
        reading.warn(place, "config has no values or is empty", fix)
    return entries


def _check_together(options: Options, places: Mapping[str, Place]) -> list[Problem]:
    """Return the problems of options that are valid by themselves, but not together.

    Also set the time limit of authorization, if it is not configured and clients use TLS.
    """
    unknown = Place(options.config_path or COMMAND_LINE, 1 if options.config_path else 0, 1)

    def at(attr: str) -> Place:
        return places.get(attr, unknown)

    problems: list[Problem] = []
    if options.lame_duck_grace_period_ns >= options.lame_duck_duration_ns:
        cause = "the lame duck grace period is not shorter than the lame duck duration"
        place = places.get("lame_duck_grace_period_ns") or at("lame_duck_duration_ns")
        problems.append(Problem(place, cause, "lower lame_duck_grace_period or raise lame_duck_duration"))
    limits = options.limits
    if limits.max_payload > limits.max_pending:
        cause = f"max_payload ({limits.max_payload}) is higher than max_pending ({limits.max_pending})"
        place = places.get("limits.max_payload") or at("limits.max_pending")
        problems.append(Problem(place, cause, "lower max_payload or raise max_pending"))
    if options.tls.certificates and "authorization.timeout_ns" not in places:
        options.authorization.timeout_ns = options.tls.timeout_ns + NS_PER_S
    problems += _check_monitoring(options, at)
    problems += _check_users(options, at("authorization"), at("no_auth_user"))
    problems += _check_websocket(options, at)
    if options.cluster.port or options.cluster.routes:
        from pyjs.config.ports.cluster import check_cluster

        problems += check_cluster(options, at)
    if options.workers != 1:
        from pyjs.config.ports.workers import check_workers

        problems += check_workers(options, at)
    problems += _check_operators(options, places, at)
    if not options.operator_keys:
        problems += _check_system_account(options, places, at("system_account"))
    problems += _check_latency(options, at("no_system_account"))
    if not problems:
        options.system_account = "" if options.no_system_account else options.system_account
    return problems


def _check_operators(
    options: Options, places: Mapping[str, Place], at: Callable[[str], Place]
) -> list[Problem]:
    keys = ("operators", "trusted_keys", "resolver", "resolver_preload", "default_sentinel")
    if not any(key in places for key in (*keys, "resolver_pinned_accounts")):
        return []
    # Imported lazily: only files with operators need the claims.
    from pyjs.config.access.operator_tokens import check_operators

    return check_operators(options, "system_account" in places, at)


def _check_monitoring(options: Options, at: Callable[[str], Place]) -> list[Problem]:
    if options.monitoring.https_port and options.monitoring.http_port:
        ports = f"HTTP ({options.monitoring.http_port}) and HTTPs ({options.monitoring.https_port})"
        return [
            Problem(at("monitoring.https_port"), f"can't specify both {ports} ports", "remove one of the two")
        ]
    if options.monitoring.https_port and not options.tls.certificates:
        cause = "TLS cert and key required for HTTPS"
        return [Problem(at("monitoring.https_port"), cause, "add tls { cert_file: ..., key_file: ... }")]
    return []


def _check_users(options: Options, place: Place, no_auth_place: Place) -> list[Problem]:
    single = options.authorization
    listed = [*single.users, *(user for account in options.accounts.values() for user in account.users)]
    if listed and (single.user or single.token):
        kind = "user" if single.user else "token"
        cause = f"a single {kind} and users in a list cannot be used together"
        return [Problem(place, cause, f"move the {kind} into the list, or drop the list")]
    return _check_no_auth_user(options, options.no_auth_user, no_auth_place)


def _check_no_auth_user(options: Options, name: str, place: Place) -> list[Problem]:
    listed = [
        *options.authorization.users,
        *(user for account in options.accounts.values() for user in account.users),
    ]
    names = [user.nkey or user.user for user in listed]
    if name and options.operators:
        cause = "no_auth_user not compatible with Trusted Operator"
        return [Problem(place, cause, "use default_sentinel for clients without credentials")]
    if name and name not in names:
        cause = f'no_auth_user: "{name}" is no user of authorization or accounts'
        fix = suggestion(name, names, "define that user in a users list")
        return [Problem(place, cause, fix)]
    return []


def _check_websocket(options: Options, at: Callable[[str], Place]) -> list[Problem]:
    if not options.websocket.port:
        return []
    # Imported lazily: only needed for a WebSocket port.
    from pyjs.config.ports.websocket import check_websocket

    return check_websocket(options, at, lambda name, place: _check_no_auth_user(options, name, place))


def _check_system_account(options: Options, places: Mapping[str, Place], place: Place) -> list[Problem]:
    name = options.system_account
    known = {SYSTEM_ACCOUNT, *options.accounts}
    if options.no_system_account and "system_account" in places:
        cause = f'no_system_account is true, and system_account is "{name}"'
        return [Problem(place, cause, "keep one of the two")]
    if name not in known:
        cause = f'system_account "{name}" is no account of this file'
        return [Problem(place, cause, suggestion(name, known, f"add accounts {{ {name}: {{}} }}"))]
    account = options.accounts.get(name)
    if account is not None and account.jetstream is not None:
        cause = f'JetStream is enabled in the system account "{name}", which cannot have it'
        return [Problem(place, cause, "remove jetstream from that account")]
    return []


def _check_latency(options: Options, place: Place) -> list[Problem]:
    if not (options.no_system_account and options.shares()):
        return []
    # Imported lazily, in 8 ms: most servers have no exports or imports.
    from pyjs.config.exchange.declared import ServiceExport

    start = "Error adding service latency sampling for"
    return [
        Problem(place, f'{start} "{export.subject}": system account not setup', "remove latency, or this")
        for exchange in options.exchanges().values()
        for export in exchange.exports
        if isinstance(export, ServiceExport) and export.latency is not None
    ]


class Change(NamedTuple):
    """One option that differs between two configurations."""

    name: str
    old: object
    new: object
    reloadable: bool


def reload_options(options: Options, read: Read, environ: Mapping[str, str]) -> Options:
    """Reread the configuration file of `options`; return the new options, with the flags of `options`.

    Raises:
        ConfigError: there is no configuration file, or it is invalid or cannot be read.
    """
    if options.config_path is None:
        cause = "can only reload config when a file is provided using -c or --config"
        raise ConfigError.at(Place("", 0, 0), cause, "restart with -c")
    return load_options(options.config_path, read, environ, options.flags)


def changes(old: Options, new: Options) -> list[Change]:
    """Return the options that differ, in the order of the option tables; secrets are shown as stars."""
    from pyjs.config.tables import TABLES

    found: list[Change] = []
    for path in ("", "jetstream", "jetstream.limits", "authorization", "cluster"):
        for key in TABLES[path].keys:
            attr = f"{path}.{key.attrs[0]}".lstrip(".")
            before, after = _plain(_get(old, attr)), _plain(_get(new, attr))
            if attr.startswith("monitoring."):
                attr = key.name
            # Attributes of Options that are not blocks of the file.
            attr = attr.removeprefix("log.").removeprefix("limits.")
            if attr in ("jetstream", "authorization", "jetstream.limits", "cluster") or (
                not path and "." in attr
            ):
                continue
            # a reload loads the certificates of the port again, and may change nothing else of it
            if attr == "websocket":
                before, after = _without(before, "tls", "place"), _without(after, "tls", "place")
            if attr == "cluster.tls":
                before, after = _without(before, "place"), _without(after, "place")
            if before != after and attr not in (change.name for change in found):
                hidden = key.secret or attr in (
                    "accounts",
                    "authorization.users",
                    "websocket",
                    "cluster.routes",
                    "cluster.authorization",
                    "http_authorization",
                )
                shown = ("***", "***") if hidden else (before, after)
                reloadable = key.reloadable and not _is_fixed(attr, before, after)
                found.append(Change(attr, *shown, reloadable or _is_idle(attr, old, new)))
    return found


def _without(block: object, *names: str) -> object:
    """Return a copy of the map `block` without the keys `names`."""
    assert isinstance(block, dict)
    return {name: value for name, value in block.items() if name not in names}


def _is_idle(attr: str, old: Options, new: Options) -> bool:
    """Return whether `attr` is an option of JetStream, and JetStream is off in `old` or in `new`.

    Such an option may change, even if its row is not reloadable.
    """
    return attr.startswith("jetstream.") and not (old.jetstream.enabled and new.jetstream.enabled)


def _is_fixed(attr: str, before: object, after: object) -> bool:
    """Return whether `attr` is a storage limit that a running server cannot change from `before` to `after`.

    The server cannot lower a limit, and cannot change a limit of -1, which depends on the machine.
    """
    if attr not in ("jetstream.max_memory", "jetstream.max_storage"):
        return False
    assert isinstance(before, int)
    assert isinstance(after, int)
    return before == -1 or after < before


def _get(options: object, attr: str) -> object:
    for step in attr.split("."):
        options = getattr(options, step)
    return options


def _plain(data: object) -> object:
    """Return `data` with its dataclasses as dictionaries, at every level, so that it compares by content."""
    if isinstance(data, tuple):
        return tuple(_plain(element) for element in data)
    if isinstance(data, dict):
        return {name: _plain(element) for name, element in data.items()}
    if is_dataclass(data):
        return {each.name: _plain(getattr(data, each.name)) for each in fields(data)}
    return data
