"""A cross-check of run.py by `nats bench` of the official command line tool.

    python benchmarks/natsbench.py [--rounds N] [--msgs N] [--nats PATH] [--peer PATH] [--ours "CMD"]

This needs the `nats` program, which --nats or $NATS_CLI names, or which is in PATH. Its Go client is often slower
than the server, so the ratios are smaller than those of run.py; both must agree on which server is faster.

Source: `nats bench --help` (pub, js pub sync|async, js fetch, js ordered).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from servers import RunningServer, ServerCommand, ServerFailed, find_peer, our_command, peer_command

# Steps that run on one fresh server, in this order: (name, arguments, share of --msgs).
STEPS = (
    ("pub", "pub bench.core", 10.0),
    ("js pub async", "js pub async bench.js --create --maxbytes 8GB", 1.0),
    ("js fetch", "js fetch --batch 500 --acks explicit", 1.0),
    ("js ordered", "js ordered", 1.0),
    ("js pub sync", "js pub sync bench.js", 0.02),
)
RATE = re.compile(r"stats: ([\d,]+) msgs/sec")


class NatsBenchFailed(Exception):
    """`nats bench` ended with an error or printed no rate; the text contains its output."""


def find_nats(path: str | None) -> str | None:
    """Return the `nats` program: `path`, $NATS_CLI, or the one in PATH."""
    return next((found for found in (path, os.environ.get("NATS_CLI"), shutil.which("nats")) if found), None)


def rate_in(output: str) -> int:
    """Return the total rate in the output of `nats bench`: the first one, since the others are per client."""
    match = RATE.search(output)
    if match is None:
        raise NatsBenchFailed(output[-1000:])
    return int(match.group(1).replace(",", ""))


def bench_once(nats: str, command: ServerCommand, msgs: int) -> dict[str, int]:
    """Run all steps on one new server; return messages per second by step."""
    rates = {}
    with RunningServer(command) as server:
        for name, words, share in STEPS:
            argv = [nats, "--server", f"nats://127.0.0.1:{server.port}", "bench", *words.split()]
            argv += ["--no-progress", "--msgs", str(max(int(msgs * share), 1))]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                raise NatsBenchFailed(f"{name}: {(done.stdout + done.stderr)[-1000:]}")
            rates[name] = rate_in(done.stdout + done.stderr)
    return rates


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--msgs", type=int, default=300_000, metavar="N", help="of a JetStream step")
    parser.add_argument("--nats", metavar="PATH")
    parser.add_argument("--peer", metavar="PATH")
    parser.add_argument("--ours", metavar="CMD")
    parser.add_argument("--peer-only", action="store_true", help="the peer against itself")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    nats, peer = find_nats(arguments.nats), find_peer(arguments.peer)
    if nats is None or peer is None:
        print(f"natsbench.py: skipped, no {'nats (set $NATS_CLI)' if nats is None else 'nats-server'}")
        return 0
    theirs = peer_command(peer)
    ours = theirs if arguments.peer_only else our_command(shlex.split(arguments.ours or ""))
    rounds = []
    try:
        for number in range(arguments.rounds):
            pair = [("ours", ours), ("peer", theirs)]
            order = pair if number % 2 == 0 else pair[::-1]
            rounds.append({side: bench_once(nats, command, arguments.msgs) for side, command in order})
    except (NatsBenchFailed, ServerFailed) as error:
        print(f"natsbench.py: {error}", file=sys.stderr)
        return 1
    print(f"{'nats bench':<15}{'ours/s':>11}{'peer/s':>11}{'ratio':>7}")
    for name, _, _ in STEPS:
        ours_rate = median(one["ours"][name] for one in rounds)
        peer_rate = median(one["peer"][name] for one in rounds)
        ratio = median(one["ours"][name] / one["peer"][name] for one in rounds)
        print(f"{name:<15}{ours_rate:>11,.0f}{peer_rate:>11,.0f}{ratio:>7.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rounds, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
