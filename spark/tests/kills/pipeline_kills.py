"""Checks `replay` after kills: `python -m spark.tests.kills.pipeline_kills replay --kills 20`.

The command runs as for a user. It is killed with -9, including its JVM and workers, when its target has reached a
random position, and is then restarted. At the end it runs without a kill. Every message must be in the target once
and in order. The target remembers message ids for a tenth of a second, so that its duplicate window hides nothing.
The seed determines the positions.
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
from abc import ABC, abstractmethod
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from spark.tests.conftest import our_command_from_anywhere, peer_or_skip
from spark.tests.support.archived import archive_here
from spark.tests.support.java import QUICK_JAVA
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.reading import parse_options
from pyjs_spark.read.pull import ReadRange, read_range

CONFIG = 'jetstream: {store_dir: "<<store>>"}'
START_S = 240.0  # a run fails if it makes no progress for this long
MESSAGES = 6000
GROUPS = 3
PER_SECOND = 10  # messages per second, by their timestamps
BEGINS = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Command:
    """`pyjs-pipeline` in a process group with all processes that it starts."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self.log_file = log
        env = {**os.environ, "PYTHONPATH": PYTHONPATH, "JAVA_TOOL_OPTIONS": QUICK_JAVA}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pyjs_spark.cli", *argv],
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )

    def check_runs(self) -> None:
        """Check that the process is running."""
        assert self.process.poll() is None, self.log()

    def wait(self, wait_s: float = START_S) -> int:
        """Wait for the process to end; return its exit code."""
        return self.process.wait(wait_s)

    def kill(self) -> None:
        """Kill all remaining processes of the command."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all processes had already ended
        self.process.wait()

    def log(self) -> str:
        """Return the end of its output."""
        return self.log_file.read_text("utf-8", "replace")[-3000:]


class Trial(ABC):
    """One pipeline whose process is killed again and again. The stream SOURCE is filled first."""

    target = ""  # the stream that grows while the pipeline makes progress

    def __init__(self, port: int, folder: Path, seed: int) -> None:
        self.address = f"nats://127.0.0.1:{port}"
        self.folder = folder
        self.raw = RawClient(port, timeout_s=60.0)
        self._random = random.Random(seed)
        self.raw.api("STREAM.CREATE.SOURCE", name="SOURCE", subjects=["source.>"])
        for low in range(1, MESSAGES + 1, 500):
            self.raw.send(b"".join(map(_publish, range(low, low + 500))))
            acks = self.raw.frames()
            for _ in range(500):
                assert b'"seq"' in next(acks)[3]

    @abstractmethod
    def argv(self) -> list[str]:
        """Return the words of the command."""

    @abstractmethod
    def wrong(self) -> dict[str, int]:
        """Return the number of errors of each kind in the target."""

    def written(self) -> int:
        """Return the progress of the target."""
        said = self.raw.try_api(f"STREAM.INFO.{self.target}")
        return int(said["state"]["last_seq"]) if "state" in said else 0

    @abstractmethod
    def whole(self) -> int:
        """Return the minimum progress of the target at the end."""

    def kill_once(self) -> int:
        """Start the command, and kill it at a random progress of the target; return the progress."""
        before = self.written()
        goal = before + self._random.randint(1, max(1, (self.whole() - before) // 2))
        command = Command(self.argv(), self.folder / "command.log")
        deadline_s = time.monotonic() + START_S
        try:
            while self.written() < goal:
                command.check_runs()
                assert time.monotonic() < deadline_s, "it does not get on: " + command.log()
                time.sleep(0.005)  # polling: no event signals progress of the target
            command.check_runs()
        finally:
            command.kill()
        return self.written()

    def finish(self) -> None:
        """Run the command to its end, and again with nothing left to do."""
        for _ in range(2):
            command = Command(self.argv(), self.folder / "command.log")
            try:
                assert command.wait() == 0, command.log()
            finally:
                command.kill()
        assert command.log().endswith("nothing new\n")


def _publish(number: int) -> bytes:
    """Return the publish of a message; every second message has an id like those of users."""
    at = BEGINS + timedelta(seconds=number // PER_SECOND)
    payload = json.dumps({"n": number, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}).encode()
    head = (
        b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if number % 2 else b"NATS/1.0\r\nKind: even\r\n\r\n"
    )
    subject = b"source.%d" % (number % GROUPS)
    sizes = (len(head), len(head) + len(payload))
    return b"HPUB %b _INBOX.raw.f %d %d\r\n%b%b\r\n" % (subject, *sizes, head, payload)


class Replay(Trial):
    """A replay of the source's archive into another stream."""

    target = "TARGET"

    def __init__(self, port: int, folder: Path, seed: int) -> None:
        super().__init__(port, folder, seed)
        self.raw.api(
            "STREAM.CREATE.TARGET", name="TARGET", subjects=["target.>"], duplicate_window=100_000_000
        )
        self._lake = str(folder / "lake")
        options = parse_options({"stream": "SOURCE", "servers": self.address})
        archive_here(self._lake, options, 1700)

    def argv(self) -> list[str]:
        """Replay in several batches, slowly enough to be killed during one."""
        return [
            "replay", self._lake, "SOURCE", "TARGET", "--id", "again", "--map", "source.> -> target.>",
            "--rows-per-batch", "1500", "--rate", "4000", "--master", "local[1]", "-s", self.address,
        ]  # fmt: skip

    def whole(self) -> int:
        """Return the number of messages in the source."""
        return MESSAGES

    def wrong(self) -> dict[str, int]:
        """Count the messages that are lost, stored more than once, or out of order."""
        client = Client(ConnectSettings((self.address,)))
        what = ReadRange("TARGET", 1, self.written() + 1, columns=("data",))
        rows = [
            json.loads(data)["n"]
            for batch in read_range(client, what)
            for data in batch.column(0).to_pylist()
        ]
        client.close()
        found = Counter(rows)
        return {
            "lost": sum(1 for number in range(1, MESSAGES + 1) if number not in found),
            "more_than_once": sum(1 for times in found.values() if times > 1),
            "out_of_order": sum(1 for one, two in pairwise(rows) if one > two),
        }


TRIALS: dict[str, type[Trial]] = {"replay": Replay}


def run(
    what: str, server: str, kills: int, folder: Path, *, seed: int = 1, tell: bool = False
) -> dict[str, Any]:
    """Return the figures of one trial."""
    command = our_command_from_anywhere() if server == "ours" else peer_or_skip()
    process = ServerProcess(command, CONFIG, folder, with_http=False)
    process.start()
    try:
        trial = TRIALS[what](process.port, folder, seed)
        places = []
        for _ in range(kills):
            places.append(trial.kill_once())
            if tell:
                print(f"{what} on {server}: killed at {places[-1]} of {trial.whole()}", flush=True)
        trial.finish()
        return {"what": what, "server": server, "killed_at": places, "wrong": trial.wrong()}
    finally:
        process.kill()


def main() -> int:
    """Run the command line; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m spark.tests.kills.pipeline_kills", description=__doc__)
    parser.add_argument("what", choices=tuple(TRIALS))
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="scratch directory; a temporary one is the default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        figures = run(args.what, args.server, args.kills, Path(scratch), seed=args.seed, tell=True)
    print(json.dumps(figures))
    return int(any(figures["wrong"].values()))


if __name__ == "__main__":
    sys.exit(main())
