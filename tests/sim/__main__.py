"""Runs seeds: `python -m tests.sim --seeds 0-9999 [--jobs 2]`, or one seed with its trace: `--seed 17 -v`.

The exit code is 1 if a seed fails. With several jobs, each job is a separate process that writes to a file.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import subprocess
import sys
import tempfile
import time
import traceback
from typing import IO

from tests.sim.world import World

TRACED = 25  # number of trace lines shown of a failed seed
PROGRESS_EVERY = 100


def run_seed(seed: int, verbose: bool = False) -> tuple[int, str]:
    """Run a seed; return the digest of its trace, and a text about its failure.

    The text has the end of the trace. It is "" if the seed did not fail.
    """
    world = World(seed, verbose)
    try:
        world.run()
    except Exception as error:
        where = "" if isinstance(error, AssertionError) else traceback.format_exc()
        tail = "\n".join(world.trace[-TRACED:])
        again = f"again: python -m tests.sim --seed {seed} -v"
        return world.digest, f"seed {seed}: {type(error).__name__}: {error}\n{where}{tail}\n{again}"
    return world.digest, ""


def run_seeds(seeds: range, verbose: bool, keep_going: bool) -> list[int]:
    """Run seeds and print the progress; return the seeds that failed."""
    failed: list[int] = []
    began = time.process_time()
    for count, seed in enumerate(seeds, 1):
        _, problem = run_seed(seed, verbose)
        if problem:
            failed.append(seed)
            print(problem, flush=True)
            if not keep_going:
                break
        if count % PROGRESS_EVERY == 0 or seed == seeds[-1]:
            each = (time.process_time() - began) / count
            print(f"{count} seeds, {len(failed)} failed, {each:.3f} s of CPU each", flush=True)
            gc.collect()
    return failed


def run_jobs(first: int, last: int, jobs: int) -> int:
    """Run the seeds in several processes; return how many processes had a failure."""
    size = -(-(last - first + 1) // jobs)
    failed = 0
    with contextlib.ExitStack() as files:
        running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        for low in range(first, last + 1, size):
            out: IO[bytes] = files.enter_context(tempfile.TemporaryFile())
            seeds = f"{low}-{min(last, low + size - 1)}"
            command = [sys.executable, "-m", "tests.sim", "--keep-going", "--seeds", seeds]
            running.append((subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT), out))
        for process, said in running:
            failed += process.wait() != 0
            said.seek(0)
            sys.stdout.write(said.read().decode())
    return failed


def main() -> int:
    """Execute the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0-199", help="first-last")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the trace as it grows")
    parser.add_argument("--keep-going", action="store_true", help="do not end with the first that objects")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    low, high = int(first), int(last or first)
    if options.seed is not None:
        low = high = options.seed
    if options.jobs > 1:
        return 1 if run_jobs(low, high, options.jobs) else 0
    return 1 if run_seeds(range(low, high + 1), options.verbose, options.keep_going) else 0


if __name__ == "__main__":
    sys.exit(main())
