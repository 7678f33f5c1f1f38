"""`python -m tests.failover kills|linear`: three servers under faults, with figures as JSON.

`kills` has publishers, a consumer and a few users of registers, and measures the time until the next
acknowledgement. `linear` has many users of registers; their histories must be linearizable.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.failover.judge import Judge, NoJudge
from tests.failover.run import run

FAULTS = {
    "kills": "kill,stop,pause,isolate,mute,split",
    "linear": "kill,pause,isolate,mute,split",
}
NEVER = 1 << 60


def main() -> int:
    """Run what the command line requests; the exit code is 1 if an invariant was violated."""
    args = parse()

    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        judge = None
        try:
            judge = Judge(args.keep or Path(tempfile.gettempdir()) / "pyjs-histories")
        except NoJudge as reason:
            print(f"histories are not judged: {reason}", file=sys.stderr)
            if args.what == "linear":
                return 1
        figures = run(args, Path(scratch), judge)
    head = {key: getattr(args, key) for key in ("what", "server", "mode", "seed", "faults")}
    text = json.dumps({**head, **figures, "total_seconds": round(time.monotonic() - started, 1)}, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    if args.markdown:
        args.markdown.write_text(markdown({**head, **figures}))
    needed_help = args.server == "ours" and figures["help that recovery needed"]
    return 1 if figures["violations"] or "broken" in figures or needed_help else 0


def markdown(figures: dict[str, Any]) -> str:
    """Return the figures as a table."""
    rows = []
    for name, found in figures.items():
        text = (
            ", ".join(f"{key} {value}" for key, value in found.items()) if isinstance(found, dict) else found
        )
        rows.append(f"| {name} | {text or 'none'} |\n")
    return "| | |\n|---|---|\n" + "".join(rows)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("what", choices=("kills", "linear"))
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--mode", choices=("default", "always", "5s", "2s"), default="default")
    parser.add_argument("--cycles", type=int, default=0, help="faults; default 20, of linear without end")
    parser.add_argument("--cycles-each", type=int, default=20, help="faults between two checks of everything")
    parser.add_argument("--operations", type=int, default=0, help="operations on registers")
    parser.add_argument("--operations-each", type=int, default=0, help="the most between two checks")
    parser.add_argument("--minutes", type=float, default=0, help="no epoch begins later; default: no limit")
    parser.add_argument("--users", type=int, default=0, help="users of registers")
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument(
        "--faults", default="", help="such as kill,pause; also power, clock, full, flip, remove"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="scratch directory; a temporary one is the default")
    parser.add_argument("--keep", type=Path, help="copy logs and stores there when something is violated")
    parser.add_argument("--markdown", type=Path, help="also write a report to this file")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    is_linear = args.what == "linear"
    args.faults = args.faults or FAULTS[args.what]
    args.cycles = args.cycles or (NEVER if is_linear else 20)
    args.operations = args.operations or (20_000 if is_linear else 0)
    args.operations_each = args.operations_each or (100_000 if is_linear else NEVER)
    args.minutes = args.minutes or 1e9
    args.users = args.users or (24 if is_linear else 4)
    return args


if __name__ == "__main__":
    sys.exit(main())
