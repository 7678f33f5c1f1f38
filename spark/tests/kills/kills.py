"""Checks that nothing is lost or stored twice after kill -9: `python -m spark.tests.kills.kills all --kills 20`.

Queries copy a stream to targets of several kinds at once (kill_driver.py), with their own driver and executor. When
every target has made progress since the last kill, one victim is killed after a random time:

    driver      Python and JVM of the driver; its executor remains, and ends once it detects this
    executor    the JVM with all running tasks; Spark starts another one
    server      the server of all streams, which is restarted at once

So each kill affects every target. The written streams remember message ids for a tenth of a second, so that a
duplicate window hides nothing. At the end the queries run until everything is copied. Then the last commits of their
checkpoints are removed, so that these batches are repeated. Every message must be in every target exactly once, those
of a replay in order. The seed determines the times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from spark.tests.conftest import our_command_from_anywhere, peer_or_skip
from spark.tests.support.archived import archived
from spark.tests.support.java import QUICK_JAVA
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerFailed, ServerProcess, free_port
from tests.style.tree import ROOT
from tests.support.raw import RawClient

from pyjs_spark.lake.tables.table import FORMATS, Lake
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read.pull import ReadRange, read_range

CONFIG = 'jetstream: {store_dir: "<<store>>"}'
BACKLOG = 1000  # messages that wait for the fastest target
LONGEST_S = 2.0  # longest time from the moment when every target has progressed to the kill
START_S = 600.0  # a trial fails if targets make no progress for this long
STARTS = 5  # attempts to start a server that was killed
LOOK_S = 0.2  # polling: no event signals progress of the targets
# pause between two portions of messages for the source, so that slow targets do not fall far behind
FILL_S = 1.0
FILL_ROWS = 300  # messages per portion
TARGETS = ("stream", "files", "parquet", "delta", "iceberg", "replay")
VICTIMS = ("executor", "server", "driver")  # the driver comes last: its end also ends the Spark of a round
WRITTEN = {"stream": "TARGET", "replay": "REPLAYED"}
STREAMS: dict[str, dict[str, object]] = {
    "SOURCE": {"subjects": ["source.>"]},
    "TARGET": {"subjects": ["target.>"], "duplicate_window": 100_000_000},
    "REPLAYED": {"subjects": ["again.>"], "duplicate_window": 100_000_000},
}


class Trial:
    """Queries for several targets; a process is killed again and again."""

    def __init__(
        self, targets: Sequence[str], victims: Sequence[str], server: ServerProcess, folder: Path
    ) -> None:
        self.targets = targets
        self.folder = folder
        self.filled = 0  # the source has the messages from 1 up to this number
        self._fill_s = 0.0  # no messages are added before this time
        # Executors are only separate processes in a cluster.
        self._master = "local-cluster[1,2,640]" if "executor" in victims else "local[2]"
        self._server = server
        self._driver: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []  # of all drivers: the executor of a killed driver may still run
        self._raw = RawClient(server.port, timeout_s=60.0)
        for name, config in STREAMS.items():
            self._raw.api(f"STREAM.CREATE.{name}", **{"name": name, **config})

    def fill(self) -> None:
        """Publish the next numbers to the source, so that even the fastest target has enough of them left."""
        if self.filled >= max(map(self.copied, self.targets)) + BACKLOG or time.monotonic() < self._fill_s:
            return
        self._fill_s = time.monotonic() + FILL_S
        lines = [
            b"PUB source.x _INBOX.raw.f %d\r\n%d\r\n" % (len(str(number)), number)
            for number in range(self.filled + 1, self.filled + FILL_ROWS + 1)
        ]
        self._raw.send(b"".join(lines))
        acks = self._raw.frames()
        for _ in lines:
            assert b'"seq"' in next(acks)[3]
        self.filled += FILL_ROWS

    def copied(self, target: str) -> int:
        """Return a lower bound for a target's messages, from its checkpoint, without a look at all files."""
        if target in WRITTEN:
            return int(self._raw.api(f"STREAM.INFO.{WRITTEN[target]}")["state"]["last_seq"])
        folder = self.folder / f"checkpoint-{target}"
        batch = max(
            (int(path.name) for path in folder.glob("commits/*") if path.name.isdigit()), default=None
        )
        if batch is None:
            return 0
        offset = json.loads((folder / f"offsets/{batch}").read_text().splitlines()[-1])
        return int(offset["streams"]["SOURCE"]["next"]) - 1

    def kill_once(self, victim: str, after_s: float) -> dict[str, Any]:
        """Kill one victim `after_s` after all targets have made progress; return the progress of each."""
        before = {target: self.copied(target) for target in self.targets}
        deadline_s = time.monotonic() + START_S
        self.start()
        while late := [target for target in self.targets if self.copied(target) <= before[target]]:
            assert time.monotonic() < deadline_s, f"no progress of {late}: {self.log()}"
            self._go_on()
        end_s = time.monotonic() + after_s
        while time.monotonic() < end_s:
            self._go_on()
        self._kill(victim)
        return {"victim": victim, **{target: self.copied(target) - before[target] for target in self.targets}}

    def _go_on(self) -> None:
        assert self._driver is not None
        assert self._driver.poll() is None, self.log()
        self.fill()
        time.sleep(LOOK_S)

    def start(self, *, once: bool = False) -> None:
        """Start the queries in a new session of processes, unless they are running."""
        if self._driver is not None:
            return
        servers = f"nats://127.0.0.1:{self._server.port}"
        said = {"servers": servers, "folder": str(self.folder), "once": once, "targets": self.targets}
        said["master"] = self._master
        command = [sys.executable, "-m", "spark.tests.kills.kill_driver", json.dumps(said)]
        env = {
            "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(ROOT)]),
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
        }
        with (self.folder / "spark.log").open("ab") as log:
            self._driver = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True
            )
        self._sessions.append(self._driver.pid)

    def _kill(self, victim: str) -> None:
        assert self._driver is not None
        if victim == "server":
            self._raw.close()
            self._server.kill()
            self._start_server()
            self._raw = RawClient(self._server.port, timeout_s=60.0)
            return
        marks = {
            "driver": b"org.apache.spark.deploy.SparkSubmit",
            "executor": b"CoarseGrainedExecutorBackend",
        }
        found = [pid for pid, command in members(self._driver.pid) if marks[victim] in command]
        assert found, f"no {victim} runs: {self.log()}"
        for pid in found:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        if victim == "driver":
            self._driver.kill()
            self._driver.wait()
            self._driver = None

    def _start_server(self) -> None:
        """Restart the server; retry, as a service would, if a busy machine needs more than a minute."""
        for left in reversed(range(STARTS)):
            try:
                self._server.start()
                return
            except ServerFailed:
                if not left:
                    raise

    def finish(self) -> None:
        """Run the queries until everything is copied, and repeat their last batches."""
        self.end()
        self.start(once=True)
        assert self._driver is not None
        try:
            assert self._driver.wait(2 * START_S) == 0, self.log()
        finally:
            self.end()
        self._raw.close()  # it answered no PING meanwhile
        self._raw = RawClient(self._server.port, timeout_s=60.0)

    def end(self) -> None:
        """Kill all remaining processes of the queries."""
        for pid in [pid for session in self._sessions for pid, _ in members(session)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._driver is not None:
            self._driver.wait()
            self._driver = None

    def check(self, target: str) -> dict[str, int]:
        """Return the numbers of messages that are lost, duplicated, unknown or out of order."""
        rows = list(self._found(target))
        found = Counter(rows)
        return {
            "messages": self.filled,
            "lost": sum(1 for number in range(1, self.filled + 1) if number not in found),
            "more_than_once": sum(1 for times in found.values() if times > 1),
            "strange": sum(1 for number in found if not 1 <= number <= self.filled),
            "out_of_order": sum(one > two for one, two in pairwise(rows)) if target == "replay" else 0,
        }

    def restarts(self) -> dict[str, int]:
        """Return how often a target was restarted, by reason."""
        path = self.folder / "restarts.log"
        lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
        return dict(Counter(lines))

    def log(self) -> str:
        """Return the end of the queries' output."""
        return (self.folder / "spark.log").read_text("utf-8", "replace")[-4000:]

    def _found(self, target: str) -> Iterator[int]:
        if target == "files":
            yield from json.loads((self.folder / "found.json").read_text())
        elif target in FORMATS:
            yield from archived(Lake(str(self.folder / target), target), "SOURCE")
        else:
            client = Client(ConnectSettings((f"nats://127.0.0.1:{self._server.port}",)))
            what = ReadRange(WRITTEN[target], 1, self.copied(target) + 1, columns=("data",))
            for batch in read_range(client, what):
                yield from map(int, batch.column(0).to_pylist())
            client.close()


def members(session: int) -> Iterator[tuple[int, bytes]]:
    """Yield the processes of a session, with their command lines; Python workers have their own process groups."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == session and words[0] != "Z":
                yield int(entry.name), (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended


def run(
    targets: Sequence[str],
    server: str,
    kills: int,
    folder: Path,
    *,
    victims: Sequence[str] = VICTIMS,
    seed: int = 1,
    minutes: float = 1e9,
    tell: bool = False,
) -> dict[str, Any]:
    """Return the figures of one trial of so many rounds; none begins when `minutes` are over."""
    end_s = time.monotonic() + 60 * minutes
    command = our_command_from_anywhere() if server == "ours" else peer_or_skip()
    process = ServerProcess(command, CONFIG, folder, with_http=False, port=free_port())
    process.start()
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    trial = None
    try:
        trial = Trial(targets, victims, process, folder)
        for number, victim in product(range(1, kills + 1), victims):
            if victim == victims[0] and time.monotonic() > end_s:
                break
            found = trial.kill_once(victim, chance.uniform(0, LONGEST_S))
            done[victim] += 1
            if tell:
                print(f"{server}, round {number}: {found}", flush=True)
        trial.finish()
        checks = {target: trial.check(target) for target in trial.targets}
        return {"server": server, "kills": done, "seed": seed, "restarts": trial.restarts(), "found": checks}
    finally:
        if trial is not None:
            trial.end()
        process.kill()


def main() -> int:
    """Run the command line; the exit code is 1 if anything is lost or stored twice."""
    parser = argparse.ArgumentParser(prog="python -m spark.tests.kills.kills", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", help=f"all, or some of {','.join(TARGETS)}")
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--kills", type=int, default=20, help="of each victim")
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--minutes", type=float, default=1e9, help="no round begins after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="scratch directory; a temporary one is the default")
    args = parser.parse_args()
    targets = TARGETS if args.what == "all" else _words(parser, args.what, TARGETS)
    if "replay" in targets and "delta" not in targets:
        targets = ("delta", *targets)  # which is replayed
    victims = _words(parser, args.victims, VICTIMS)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        figures = run(
            targets, args.server, args.kills, Path(scratch),
            victims=victims, seed=args.seed, minutes=args.minutes, tell=True,
        )  # fmt: skip
    print(json.dumps({**figures, "seconds": round(time.monotonic() - started)}))
    wrong = ("lost", "more_than_once", "strange", "out_of_order")
    return int(any(found[name] for found in figures["found"].values() for name in wrong))


def _words(parser: argparse.ArgumentParser, said: str, known: Sequence[str]) -> tuple[str, ...]:
    words = tuple(said.split(","))
    if unknown := [word for word in words if word not in known]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return words


if __name__ == "__main__":
    sys.exit(main())
