"""Whether anything is lost or there twice after Spark was killed: `python -m spark.tests.kills.kills all --kills 20`.

A query copies a stream (kill_driver.py): to Parquet by Spark's file sink (files) or by the archive (archive), or to
another stream (stream); or all do at once. Once it gets on, all its processes are killed with -9 after a random
time; then it is started again from its checkpoint. The target stream remembers message ids for a tenth of a second,
so that its duplicate window hides nothing. At the end the query runs until all is read, the last commit of its
checkpoint is taken back and the batch comes again, and every message must be in the target exactly once. The seed
decides the times.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from spark.tests.conftest import our_command_from_anywhere, peer_or_skip
from spark.tests.kills.kill_driver import PARTITION_ROWS
from spark.tests.support.java import QUICK_JAVA
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess
from tests.style.tree import ROOT
from tests.support.raw import RawClient

from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read.pull import ReadRange, read_range

CONFIG = 'jetstream: {store_dir: "<<store>>"}'
BACKLOG = 12_000  # messages that wait when the query starts
LONGEST_S = 6.0  # from the first progress of a run to its kill
START_S = 240.0  # a run that does not get on for so long fails the test
TARGETS = ("stream", "files", "archive", "delta")
STREAMS: dict[str, dict[str, object]] = {
    "SOURCE": {"subjects": ["source.>"]},
    "TARGET": {"subjects": ["target.>"], "duplicate_window": 100_000_000},
}


class Trial:
    """One query, killed again and again."""

    def __init__(self, what: str, port: int, folder: Path, seed: int) -> None:
        self.what = what
        self.targets = TARGETS if what == "all" else (what,)
        self.folder = folder
        self.port = port
        self.filled = 0  # messages 1 to this one are in the source
        self._random = random.Random(seed)
        self._raw = RawClient(port, timeout_s=60.0)
        for name, config in STREAMS.items():
            self._raw.api(f"STREAM.CREATE.{name}", **{"name": name, **config})

    def fill(self) -> None:
        """Publish the next numbers to the source, so that enough of them wait."""
        copied = self.progress() * (PARTITION_ROWS if self.what != "all" and self.what != "stream" else 1)
        count = max(0, BACKLOG - (self.filled - copied)) // 1000 * 1000
        for low in range(self.filled, self.filled + count, 1000):
            lines = [
                b"PUB source.x _INBOX.raw.f %d\r\n%d\r\n" % (len(str(number)), number)
                for number in range(low + 1, low + 1001)
            ]
            self._raw.send(b"".join(lines))
            acks = self._raw.frames()
            for _ in lines:
                assert b'"seq"' in next(acks)[3]
        self.filled += count

    def start(self, once: bool) -> subprocess.Popen[bytes]:
        """Start the query in a session of processes of its own."""
        said = {"servers": f"nats://127.0.0.1:{self.port}", "folder": str(self.folder), "once": once}
        command = [sys.executable, "-m", "spark.tests.kills.kill_driver", self.what, json.dumps(said)]
        paths = os.pathsep.join([PYTHONPATH, str(ROOT)])
        with (self.folder / "spark.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def progress(self) -> int:
        """Return a number that grows while the query gets on: batches, files, or messages of the target."""
        if "stream" in self.targets:
            return int(self._raw.api("STREAM.INFO.TARGET")["state"]["last_seq"])
        return sum(1 for _ in (self.folder / self.what).rglob("*.parquet"))

    def kill_once(self) -> dict[str, float]:
        """Start the query, wait until it gets on, kill it at a random time; return when that was."""
        before = self.progress()
        process = self.start(once=False)
        deadline_s = time.monotonic() + START_S
        try:
            while self.progress() == before:
                assert process.poll() is None, self.log()
                assert time.monotonic() < deadline_s, "the query does not get on: " + self.log()
                time.sleep(0.02)  # between two looks at what it wrote: there is no event to wait for
            after_s = self._random.uniform(0, LONGEST_S)
            time.sleep(after_s)
            assert process.poll() is None, self.log()
        finally:
            self.kill(process)
        return {"after_s": round(after_s, 2), "progress": self.progress() - before}

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill everything that the query consists of: Python, JVM, workers."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended
        process.wait()

    def finish(self) -> None:
        """Run the query until all is read, and its last batch again."""
        process = self.start(once=True)
        try:
            assert process.wait(START_S + 600) == 0, self.log()
        finally:
            self.kill(process)

    def check(self, target: str) -> dict[str, int]:
        """Return how many messages are lost, and how many are there more than once."""
        found = Counter(self._found(target))
        return {
            "messages": self.filled,
            "lost": sum(1 for number in range(1, self.filled + 1) if number not in found),
            "more_than_once": sum(1 for times in found.values() if times > 1),
            "strange": sum(1 for number in found if not 1 <= number <= self.filled),
        }

    def log(self) -> str:
        """Return the end of what the query said."""
        return (self.folder / "spark.log").read_text("utf-8", "replace")[-3000:]

    def _found(self, target: str) -> Iterator[int]:
        if target == "files":
            yield from json.loads((self.folder / "found.json").read_text())
        elif target == "archive":
            for path in (self.folder / target).rglob("seq=*.parquet"):
                yield from pq.ParquetFile(path).read(["seq"])["seq"].to_pylist()
        elif target == "delta":
            from deltalake import DeltaTable

            for uri in DeltaTable(f"{self.folder}/delta/SOURCE").file_uris():
                yield from pq.ParquetFile(uri.removeprefix("file://")).read(["seq"])["seq"].to_pylist()
        else:
            client = Client(ConnectSettings((f"nats://127.0.0.1:{self.port}",)))
            what = ReadRange("TARGET", 1, self.progress() + 1, columns=("data",))
            for batch in read_range(client, what):
                yield from map(int, batch.column(0).to_pylist())
            client.close()


def run(
    what: str,
    server: str,
    kills: int,
    folder: Path,
    *,
    seed: int = 1,
    minutes: float = 1e9,
    tell: bool = False,
) -> dict[str, Any]:
    """Return the figures of one trial; no kill begins when `minutes` are over."""
    end_s = time.monotonic() + 60 * minutes
    command = our_command_from_anywhere() if server == "ours" else peer_or_skip()
    process = ServerProcess(command, CONFIG, folder, with_http=False)
    process.start()
    try:
        trial = Trial(what, process.port, folder, seed)
        done = []
        while len(done) < kills and time.monotonic() < end_s:
            trial.fill()
            done.append(trial.kill_once())
            if tell:
                print(f"{what} on {server}: kill {len(done)} {done[-1]}", flush=True)
        trial.finish()
        checks = {target: trial.check(target) for target in trial.targets}
        return {"what": what, "server": server, "kills": len(done), "seed": seed, "found": checks}
    finally:
        process.kill()


def main() -> int:
    """Run what the command line names; the exit code is 1 if anything is lost or there twice."""
    parser = argparse.ArgumentParser(prog="python -m spark.tests.kills.kills", description=__doc__)
    parser.add_argument("what", choices=(*TARGETS, "all"))
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="no kill begins after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="scratch directory; a temporary one is the default")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        folder = Path(scratch)
        figures = run(
            args.what, args.server, args.kills, folder, seed=args.seed, minutes=args.minutes, tell=True
        )
    print(json.dumps({**figures, "seconds": round(time.monotonic() - started)}))
    wrong = ("lost", "more_than_once", "strange")
    return int(any(found[name] for found in figures["found"].values() for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
