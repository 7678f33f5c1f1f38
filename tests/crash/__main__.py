"""`python -m tests.crash <what>`, where <what> is one of WHAT; the figures are JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path

WHAT = ("damage", "kill", "acks", "batches", "dead", "power", "errors", "outages")


def main() -> int:
    """Run the test that the command line names; the exit code is 0 unless it cannot run on this machine."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--mode", choices=("default", "always", "5s", "2s"), default="default")
    parser.add_argument(
        "--cycles",
        type=int,
        default=0,
        help="number of cases, cycles or crashes; damage: the size of a sample",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--process", action="store_true", help="damage: test our server in real processes too"
    )
    parser.add_argument("--part", default="1/1", help="damage: test only this part of the cases, such as 2/4")
    parser.add_argument("--begin", type=int, default=0, help="damage: skip this number of cases of the part")
    parser.add_argument("--store", choices=("stopped", "killed"), help="damage: test only this store")
    parser.add_argument("--dir", type=Path, help="scratch directory; a temporary one is the default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if args.dir:
        args.dir.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        figures = importlib.import_module(f"tests.crash.{args.what}").run(args, Path(scratch))
    head = {key: getattr(args, key) for key in ("what", "server", "mode", "seed")}
    text = json.dumps({**head, **figures, "total_seconds": round(time.monotonic() - started, 1)}, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return 2 if "skipped" in figures else 0


if __name__ == "__main__":
    sys.exit(main())
