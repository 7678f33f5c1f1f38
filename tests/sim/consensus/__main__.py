"""Runs many seeds of the consensus simulation: python -m tests.sim.consensus --seeds 0-9999 [--mutant NAME]."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.consensus.mutants import MUTANTS, world_of
from tests.sim.consensus.world import World, play


def main() -> int:
    """Run the seeds; print each that fails, and a summary line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.consensus", description=__doc__)
    parser.add_argument("--seeds", default="0-9999", help="one number, or first-last")
    parser.add_argument("--mutant", choices=MUTANTS, help="a flaw that must be found")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    world = world_of(options.mutant) if options.mutant else World
    began = time.process_time()
    failed = 0
    seeds = range(int(first), int(last or first) + 1)
    for seed in seeds:
        if text := play(seed, world):
            failed += 1
            print(f"seed {seed}: {text}", flush=True)
    print(f"{len(seeds)} seeds, {failed} violated, {time.process_time() - began:.0f} s of processor time")
    return 1 if failed and not options.mutant else 0


if __name__ == "__main__":
    sys.exit(main())
