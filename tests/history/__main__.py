"""Plays histories: `python -m tests.history --seeds 0-1999`, or one with its operations printed: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.history.judging import run
from tests.history.making import make


def main() -> int:
    """Run the command line; return 1 if a history differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--seeds", default="0-1999", help="first-last")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the history")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    if options.verbose:
        for seed in seeds:
            print(make(seed))
    began = time.monotonic()
    failed = run(seeds, lambda text: print(text, flush=True))
    print(f"{len(seeds)} histories, {len(failed)} differ {failed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
