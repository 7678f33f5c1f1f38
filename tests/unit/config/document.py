"""docs/configuration.md as the tables say it: `python -m tests.unit.config.document` writes it."""

from __future__ import annotations

from pathlib import Path

from pyjs.config.table import Key, Table
from pyjs.config.tables import TABLES

PATH = Path(__file__).resolve().parents[3] / "docs/configuration.md"
HEAD = """# Configuration keys

The configuration file has nats-server's language: maps, lists, `include`, `$variables` and the environment, `10MB`,
`30s`. An unknown key is refused with its place and the closest known key. The case of keys does not matter;
brackets hold other names of the same key.

`R` marks keys that a reload applies (`SIGHUP` or `--signal reload`). If a file changes another key, the reload is
refused as a whole and the running configuration stays. A reload can also turn JetStream on or off, for the server
and for single accounts: an account's stored streams stay on disk until it has JetStream again. While JetStream
runs, `max_mem` and `max_file` can only grow; its other keys change while it is off.

`/varz?config=1` shows the value of every key in its `config` object (durations in nanoseconds, secrets as stars).
Without the argument /varz is as in nats-server, plus `pyjs_faults` after an unexpected error.
tests/unit/config/test_effects.py tests the effect of each key.

Keys whose effect differs from nats-server:

- `sync_interval` is 1 s (nats-server: 2 minutes). With `always`, or `sync_always: true`, the answer to a publish, a
  purge, a deleted message and an acknowledgement with a reply subject leaves when it is on the medium.
- `scrub_rate` exists only in this server: the bytes a second that the check of stored files reads while the server
  runs (docs/operations.md). The default is 8MB; 0 turns the check off.
- `trace` leaves out the clients of the system account; `trace_verbose` shows them.
- `disable_sublist_cache` frees cached routes at the end of each turn.

`python -m tests.unit.config.document` writes this page.
"""
TITLES = {
    "": "Top level",
    "jetstream": "`jetstream { }`",
    "jetstream.limits": "`jetstream { limits { } }`",
    "authorization": "`authorization { }`",
    "tls": "`tls { }`",
    "accounts.*": "`accounts { NAME { } }`",
    "accounts.*.limits": "`accounts { NAME { limits { } } }`",
    "accounts.*.jetstream": "`accounts { NAME { jetstream { } } }`",
    "users.*": "An entry of `users`",
    "permissions": "`permissions { }`",
    "permissions.allow_responses": "`permissions { allow_responses { } }`",
}


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(_section(path, table) for path, table in TABLES.items())])


def _section(path: str, table: Table) -> str:
    inherited = path not in ("", "jetstream", "jetstream.limits", "authorization", "tls")
    lines = [f"## {TITLES[path]}", "", "| Key | Value | |", "|---|---|---|"]
    lines += [_row(key, inherited) for key in table.keys]
    if table.unsupported:
        lines += ["", "Refused by name, because it would change nothing here yet:", ""]
        lines += [f"- {_names(*row.names)}: {row.reason}" for row in table.unsupported]
    return "\n".join(lines) + "\n"


def _row(key: Key, inherited: bool) -> str:
    reloadable = "R" if key.reloadable or inherited else ""
    return f"| {_names(key.name, *key.aliases)} | {key.kind.name} | {reloadable} |"


def _names(name: str, *others: str) -> str:
    more = f" ({', '.join(f'`{other}`' for other in others)})" if others else ""
    return f"`{name}`{more}"


if __name__ == "__main__":
    PATH.write_text(page())
