"""Runs many seeds of the engine's simulation: python -m raft.tests.sim --seeds 0-9999 [--log] [--mutant NAME]."""

from __future__ import annotations

import argparse
import sys
import time

from raft.tests.sim.log_disk import LoggedWorld
from raft.tests.sim.mutants import MUTANTS, world_of
from raft.tests.sim.world import World, play


def main() -> int:
    """Run the seeds; print each that fails, and a summary line."""
    parser = argparse.ArgumentParser(prog="python -m raft.tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0-9999", help="one number, or first-last")
    parser.add_argument("--mutant", choices=MUTANTS, help="a flaw that must be found")
    parser.add_argument("--log", action="store_true", help="on the real node log instead of a simulated one")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    world = LoggedWorld if options.log else World
    world = world_of(MUTANTS[options.mutant]) if options.mutant else world
    began = time.process_time()
    failed = 0
    seeds = range(int(first), int(last or first) + 1)
    for seed in seeds:
        if text := play(seed, world):
            failed += 1
            print(f"seed {seed}: {text}")
    print(f"{len(seeds)} seeds, {failed} violated, {time.process_time() - began:.0f} s of processor time")
    return 1 if failed and not options.mutant else 0


if __name__ == "__main__":
    sys.exit(main())
