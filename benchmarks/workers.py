"""One process compared with several workers of this server: the same clients on both, in turn.

    python benchmarks/workers.py [--rounds N] [--workers N] [--clients N] [--msgs FACTOR] [--spread]

With --spread, the stream of the JetStream rows is in the last worker. The processor time is that of all processes of
a server. The kernel assigns a connection to a worker by its address, so that with few clients chance affects a round;
therefore the spread of the rounds is printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from driver_build import Driver, build_driver
from servers import RunningServer, cpu_s_of, our_command

ROWS: dict[str, tuple[str, int]] = {  # {n} is the number of clients
    "pub": ("pub --publishers {n}", 8_000_000),
    "pubsub": ("pubsub --publishers {n}", 2_000_000),
    "reqrep": ("reqrep --connections {n} --window 16", 100_000),
    "jspub": ("jspub --publishers {n}", 500_000),
    "jssync": ("jssync --connections {n}", 40_000),
}


class Side:
    """A server of one or several processes."""

    def __init__(self, workers: int, stack: ExitStack, *, is_spread: bool = False) -> None:
        config = f"workers: {workers}" if workers > 1 else ""
        command = our_command()
        if is_spread:
            command = replace(command, argv=(*command.argv, "--spread_workers"))
        self._server = stack.enter_context(RunningServer(command, config=config))

    def run(self, driver: Driver, arguments: str, msgs: int) -> tuple[float, float]:
        """Run one round; return messages per second and microseconds of processor time per message."""
        before = self._cpu_s()
        result = driver.run([*arguments.split(), "--msgs", str(msgs), "--port", str(self._server.port)])
        return result["rate"], 1e6 * (self._cpu_s() - before) / result["msgs"]

    def _cpu_s(self) -> float:
        return sum(cpu_s_of(pid) for pid in (self._server.pid, *children(self._server.pid)))


def children(pid: int) -> Iterator[int]:
    """Yield the descendants of process `pid`."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from children(int(child))


def main() -> int:
    """Run all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--msgs", type=float, default=1.0, help="a factor for the number of messages")
    parser.add_argument("--spread", action="store_true", help="streams in all workers")
    parser.add_argument("--only", default="", help="the start of row names")
    given = parser.parse_args()
    driver = Driver(build_driver())
    print("| row | rate, workers / one | CPU us, workers / one |\n|---|---|---|")
    with ExitStack() as stack:
        sides = [Side(given.workers, stack, is_spread=given.spread), Side(1, stack)]
        for name, (arguments, msgs) in ROWS.items():
            if name.startswith(given.only):
                words, count = arguments.format(n=given.clients), max(1, int(msgs * given.msgs))
                _print_row(
                    name, [[side.run(driver, words, count) for side in sides] for _ in range(given.rounds)]
                )
    return 0


def _print_row(name: str, rounds: list[list[tuple[float, float]]]) -> None:
    ratios = sorted(several[0] / one[0] for several, one in rounds)
    cpu = " / ".join(f"{statistics.median(each[at][1] for each in rounds):.2f}" for at in range(2))
    rate = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    print(f"| {name} | {rate} | {cpu} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
