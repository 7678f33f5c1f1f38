"""Start-up times: from just before exec to a client's first PONG, with `-js` and an empty store.

    python benchmarks/startup.py [--rounds N] [--peer PATH] [--ours "CMD"] [--json FILE]

Bytecode is cached, as in an installation: the caller's PYTHONDONTWRITEBYTECODE is ignored.
In each round `python -c pass` (until its exit), nats-server and our server are started in turn. The program that
starts them is native (`natsload spawn`), so that no Python code runs between the clock and the server.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from driver_build import Driver, DriverFailed, build_driver
from servers import ServerCommand, find_peer, free_port, our_command, peer_command


def start_once(driver: Driver, command: ServerCommand) -> float:
    """Return the milliseconds from exec to PONG of a new server, which is then killed."""
    store = tempfile.mkdtemp(prefix="natsload-")
    port = str(free_port())
    try:
        serve = [*command.argv, "-js", "-a", "127.0.0.1", "-p", port, "-sd", store]
        return _spawn(driver, port, serve)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def bare_python_once(driver: Driver) -> float:
    """Return the milliseconds that a Python interpreter without a program takes."""
    return _spawn(driver, "0", [sys.executable, "-c", "pass"])


def _spawn(driver: Driver, port: str, command: list[str]) -> float:
    return float(driver.run(["spawn", "--port", port, "--timeout", "20", "--", *command])["seconds"]) * 1e3


def _rounds(driver: Driver, commands: list[ServerCommand], count: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in ("python -c pass", *(c.name for c in commands))}
    for number in range(count + 1):  # the first round warms the page cache and is dropped
        times = {"python -c pass": bare_python_once(driver)}
        for command in commands:
            times[command.name] = start_once(driver, command)
        for name in times if number else ():
            took[name].append(times[name])
    return took


def main(argv: list[str] | None = None) -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--peer", metavar="PATH")
    parser.add_argument("--ours", metavar="CMD")
    parser.add_argument("--peer-only", action="store_true", help="leave our server out")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    peer = find_peer(arguments.peer)
    commands = [peer_command(peer)] if peer else []
    if not arguments.peer_only:
        commands.append(our_command(shlex.split(arguments.ours or "")))
    for command in commands:
        os.environ.update(command.environment)  # child processes inherit this environment
    try:
        took = _rounds(Driver(build_driver()), commands, arguments.rounds)
    except DriverFailed as error:
        print(f"startup.py: {error}", file=sys.stderr)
        return 1
    for name, times in took.items():
        print(f"{name:<16}{median(times):8.1f} ms   ({min(times):.1f}-{max(times):.1f}, {len(times)} starts)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"milliseconds": took}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
