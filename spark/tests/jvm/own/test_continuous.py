"""`--continuous` as a service runs it: what comes meanwhile is taken in, SIGTERM ends it, nothing is half done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, required
from spark.tests.jvm.conftest import lacking
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow.parquet as pq
from spark.tests.kills.pipeline_kills import Command  # needs pyarrow

from pyjs_spark.lake.compact import SNAPSHOT

MISSING = "" if required("spark") else lacking()
ENDED = "pyjs-pipeline: interrupted; what is written stays, the next run goes on after it\n"
WAIT_S = 120.0


def until(is_so: Callable[[], bool], command: Command) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        command.check_runs()
        assert time.monotonic() < deadline_s, command.log()
        time.sleep(0.05)  # between two looks at what it wrote: there is no event to wait for


def is_gone(group: int) -> bool:
    """Say whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_snapshots_are_made_again_and_again_until_sigterm(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)
    path = tmp_path / f"stream={filler.name}" / SNAPSHOT
    command = Command(
        ["compact", "--latest", filler.name, str(tmp_path), "--master", "local[1]",
         "-s", f"nats://127.0.0.1:{server.port}", "--continuous", "--every", "200ms"],
        tmp_path / "command.log",
    )  # fmt: skip

    def seqs() -> list[int]:
        data = BytesIO(path.read_bytes())  # in one piece: the file is replaced again and again
        return sorted(pq.read_table(data)["seq"].to_pylist())

    try:
        until(lambda: path.exists() and seqs() == [1, 2, 3], command)
        filler.fill(1)  # another message of a subject that was there
        until(lambda: seqs() == [2, 3, 4], command)
        command.process.send_signal(signal.SIGTERM)
        code = command.wait()
    finally:
        command.kill()

    assert code == 143
    assert command.log().endswith(ENDED)
    assert seqs() == [2, 3, 4]
    assert {each.name for each in path.parent.iterdir()} - {"_tmp"} == {"_latest.json", SNAPSHOT}
