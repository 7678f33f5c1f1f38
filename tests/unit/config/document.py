"""docs/configuration.md as the tables say it: `python -m tests.unit.config.document` writes it."""

from __future__ import annotations

from pathlib import Path

from pyjs.config.table import Key, Table
from pyjs.config.tables import TABLES

PATH = Path(__file__).resolve().parents[3] / "docs/configuration.md"
HEAD = """# Configuration keys

The language is nats-server's: maps, lists, `include`, `$variables` and the environment, `10MB`, `30s`. A key that is
not here is refused with its place and a guess at what was meant. Keys are compared without case; in brackets are
other names of the same key. `R`: a changed value is applied by `SIGHUP` or `--signal reload`; a file that changes
another key is refused as a whole and the running configuration stays. A reload starts and ends JetStream, of the
server and of single accounts: what an account stored stays on disk and is there when it has JetStream again. Of a
running server `max_mem` and `max_file` can only grow; the other keys of `jetstream` change while it is off.

`/varz?config=1` shows the value of every key in its `config` object (durations in nanoseconds, secrets as stars);
without the argument /varz is as nats-server's, but for `pyjs_faults` once something failed unexpectedly. What each
key does is tried by tests/unit/config/test_effects.py.

Where the effect is not nats-server's:

- `sync_interval` is 1 s (nats-server: 2 minutes); with `always`, or `sync_always: true`, a publish, a
  purge, the deletion of a message and an acknowledgement that asks for it are answered when they are on the medium.
- `scrub_rate` is a key of this server: so many bytes a second the check of stored files reads while the server runs
  (docs/operations.md), 8MB when it is not given; 0 turns the check off.
- `trace` leaves out the clients of the system account; `trace_verbose` shows them.
- `disable_sublist_cache` gives cached routes back at the end of each turn.

This page is written by `python -m tests.unit.config.document`.
"""
TITLES = {
    "": "Top level",
    "jetstream": "`jetstream { }`",
    "jetstream.limits": "`jetstream { limits { } }`",
    "authorization": "`authorization { }`",
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
    inherited = path not in ("", "jetstream", "jetstream.limits", "authorization")
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
