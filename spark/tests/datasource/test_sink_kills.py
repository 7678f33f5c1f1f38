"""Writers are killed with SIGKILL at random points: each row is stored once, with a duplicate window of 100 ms."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

from spark.tests.support import sink_client  # this module needs pyarrow
from spark.tests.support.forked import forked

from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read.pull import ReadRange, read_range

KILLS = int(os.environ.get("PYJS_SINK_KILLS", "6"))
BATCHES = 6


def last_seq(filler: Filler) -> int:
    return int(filler.raw.api(f"STREAM.INFO.{filler.name}")["state"]["last_seq"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rows_of_a_writer_that_is_killed_are_stored_once(
    filler: Filler, server: ServerProcess, tmp_path: Path
) -> None:
    filler.create(duplicate_window=100_000_000)
    chance = random.Random(filler.name)
    kills = 0
    while True:
        process = forked(sink_client.write, server.port, filler.name, tmp_path, BATCHES)
        # Killed when the stream has grown this far: at a random place within a batch or between two.
        goal = last_seq(filler) + chance.randrange(1, sink_client.PARTITIONS * sink_client.ROWS)
        while process.is_alive() and kills < KILLS and last_seq(filler) < goal:
            pass
        if not process.is_alive() or kills == KILLS:
            break
        process.kill()
        process.join()
        kills += 1
    process.join(120)
    assert process.exitcode == 0

    client = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",)))
    what = ReadRange(filler.name, 1, last_seq(filler) + 1, columns=("data",))
    found = Counter(int(row) for batch in read_range(client, what) for row in batch.column(0).to_pylist())
    client.close()
    total = BATCHES * sink_client.PARTITIONS * sink_client.ROWS
    assert [number for number in range(total) if found[number] != 1] == []
    assert sum(found.values()) == total
    assert kills >= 3
