"""Checks queries that continue with other cores and minPartitions: `python -m spark.tests.kills.restarts --times 20`.

Each time a new query copies a stream to another one with local[2], exactly once. It is stopped after a random number
of batches, and the last commit of its checkpoint is removed, so that this batch is pending although its rows are in
the target. Then the query continues with local[4] and another `minPartitions`. Every message must be in the target
exactly once; its duplicate window is too short to help. The seed determines the sizes.

Spark waits ten seconds, which no setting changes, for the Python process that plans a query. If a busy machine starts
it later, the query ends before it has done anything, and is restarted from its checkpoint, as a service would do.
These restarts are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from spark.tests.conftest import our_command_from_anywhere, peer_or_skip
from spark.tests.kills.kill_driver import SLOW_START, take_back_last_commit
from spark.tests.support.java import QUICK_JAVA, QUICK_PLANS
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

import pyjs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

CONFIG = 'jetstream: {store_dir: "<<store>>"}'


class Restart:
    """One query that is stopped on few cores and continued on more cores."""

    def __init__(self, port: int, folder: Path, chance: random.Random) -> None:
        self._port = port
        self._raw = RawClient(port, timeout_s=60.0)
        self._servers = f"nats://127.0.0.1:{port}"
        self._folder = folder
        self._messages = chance.randint(300, 900)
        self._rows = chance.randint(self._messages // 6, self._messages)  # rows per batch
        self._stop_after = chance.randint(1, -(-self._messages // self._rows))  # number of batches
        self._partitions = chance.sample(range(1, 9), 2)
        self._slow_starts = 0
        for name in ("FROM", "TO"):
            self._raw.try_api(f"STREAM.DELETE.{name}")
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "duplicate_window": 100_000_000}
            self._raw.api(f"STREAM.CREATE.{name}", **config)

    def fill(self) -> None:
        """Publish the numbers to the source."""
        lines = [
            b"PUB from.x _INBOX.raw.f %d\r\n%d\r\n" % (len(str(n)), n) for n in range(1, self._messages + 1)
        ]
        self._raw.send(b"".join(lines))
        acks = self._raw.frames()
        for _ in lines:
            assert b'"seq"' in next(acks)[3]

    def run(self, cores: int, partitions: int, batches: int | None) -> None:
        """Run the query until it has read everything, or has completed `batches` batches."""
        spark = session(cores)
        source = spark.readStream.format("jetstream").options(
            servers=self._servers, stream="FROM", startingOffsets="earliest",
            maxRowsPerTrigger=str(self._rows), minPartitions=str(partitions),
        )  # fmt: skip
        writer = source.load().selectExpr("'to.x' AS subject", "data").writeStream.format("jetstream")
        writer = writer.options(
            servers=self._servers, stream="TO", checkpointLocation=str(self._folder / "checkpoint-stream")
        )
        while not self._has_run(writer, batches):
            self._slow_starts += 1
        spark.stop()

    def _has_run(self, writer: DataStreamWriter, batches: int | None) -> bool:
        """Run the query once; return False if its Python took longer to start than Spark waits."""
        from pyspark.errors import StreamingQueryException

        query = (writer if batches else writer.trigger(availableNow=True)).start()
        try:
            while batches and not (self._folder / f"checkpoint-stream/commits/{batches - 1}").exists():
                assert not query.awaitTermination(0.05)
            query.stop() if batches else query.awaitTermination()
        except StreamingQueryException as error:
            if SLOW_START not in str(error):
                raise
            return False
        return True

    def trial(self) -> dict[str, object]:
        """Return the results, including the number of messages that are lost or stored twice."""
        self.fill()
        first, second = self._partitions
        self.run(2, first, self._stop_after)
        take_back_last_commit(self._folder)
        self.run(4, second, None)
        self._raw.close()  # it has answered no PING while Spark ran
        self._raw = RawClient(self._port, timeout_s=60.0)
        last = int(self._raw.api("STREAM.INFO.TO")["state"]["last_seq"])
        found = Counter(self._payload(seq) for seq in range(1, last + 1))
        return {
            "messages": self._messages,
            "rows_per_batch": self._rows,
            "stopped_after": self._stop_after,
            "partitions": self._partitions,
            "slow_starts": self._slow_starts,
            "lost": sum(number not in found for number in range(1, self._messages + 1)),
            "twice": sum(count - 1 for count in found.values()),
        }

    def _payload(self, seq: int) -> int:
        import base64

        said = self._raw.api("STREAM.MSG.GET.TO", seq=seq)["message"]
        return int(base64.b64decode(said["data"]))

    def end(self) -> None:
        """Close the connection."""
        self._raw.close()


def session(cores: int) -> SparkSession:
    """Return a Spark with `cores` cores; all of them use the same JVM."""
    os.environ["PYTHONPATH"] = PYTHONPATH  # for the JVM, whose Python processes inherit it
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.log.level": "ERROR",
        "spark.default.parallelism": str(cores),
        "spark.ui.showConsoleProgress": "false",
        **QUICK_PLANS,
    }
    return pyjs_spark.session("restarts", f"local[{cores}]", **settings)


def trials(times: int, server: str, seed: int, folder: Path) -> list[dict[str, object]]:
    """Run `times` restarts with one server."""
    command = our_command_from_anywhere() if server == "ours" else peer_or_skip()
    (folder / "server").mkdir(parents=True)
    process = ServerProcess(command, CONFIG, folder / "server", with_http=False)
    process.start()
    chance = random.Random(seed)
    found = []
    try:
        for number in range(times):
            restart = Restart(process.port, folder / str(number), chance)
            found.append(restart.trial())
            restart.end()
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    finally:
        process.kill()
    return found


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--server", choices=["ours", "peer"], default="ours")
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = trials(said.times, said.server, said.seed, Path(folder))
    good = sum(each["lost"] == 0 and each["twice"] == 0 for each in found)
    print(f"{good} of {said.times} continued with every message exactly once")
    sys.exit(good != said.times)


if __name__ == "__main__":
    main()
