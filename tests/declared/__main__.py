"""Plays histories of edits of a file: `python -m tests.declared --seeds 0-99`; or measures reloads of a long one."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.declared.playing import run
from tests.declared.sizes import measure


def main() -> int:
    """Do what the command line says; 1: a history did not end equal to its file."""
    parser = argparse.ArgumentParser(prog="python -m tests.declared", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="first-last")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="servers")
    parser.add_argument(
        "--reload", type=int, metavar="COUNT", help="measure reloads with so many streams instead"
    )
    options = parser.parse_args()
    if options.reload:
        with tempfile.TemporaryDirectory() as directory:
            print("\n".join(measure(options.reload, Path(directory)).lines()))
        return 0
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        failed = run(seeds, Path(directory), lambda text: print(text, flush=True), nodes=options.nodes)
    print(f"{len(seeds)} histories, {len(failed)} differ {failed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
