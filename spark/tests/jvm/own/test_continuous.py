"""`--continuous` as a service runs it: new messages are archived, SIGTERM ends it, and no file is incomplete."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.jvm.conftest import IS_MATRIX
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow.parquet as pq
from spark.tests.kills.pipeline_kills import Command  # this module needs pyarrow

from pyjs_spark.lake.compact import SNAPSHOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ENDED = "pyjs-pipeline: interrupted; what is written stays, the next run goes on after it\n"
WAIT_S = 120.0


def until(is_so: Callable[[], bool], command: Command) -> None:
    """Wait until `is_so` returns true."""
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        command.check_runs()
        assert time.monotonic() < deadline_s, command.log()
        time.sleep(0.05)  # polling: no event signals its output


def test_an_archive_that_a_file_describes_goes_on_until_sigterm(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    lake, file = tmp_path / "lake", tmp_path / "pipeline.toml"
    status = tmp_path / "status.json"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "{lake}"\nrows_per_file = 5\n'
        f'master = "local[1]"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
        '[spark]\n"spark.driver.memory" = "512m"\n'
    )
    watched = ["--status-file", str(status)]
    command = Command(
        ["run", "-c", str(file), "--continuous", "--every", "200ms", *watched], tmp_path / "command.log"
    )

    def seqs() -> list[int]:
        files = lake.rglob("date=*/seq=*.parquet")
        return sorted(seq for path in files for seq in pq.ParquetFile(path).read(["seq"])["seq"].to_pylist())

    try:
        until(lambda: seqs() == list(range(1, 13)), command)
        filler.fill(6)
        until(lambda: seqs() == list(range(1, 19)), command)
        until(lambda: "nothing new\n" in command.log().partition("next sequence 19\n")[2], command)
        command.process.send_signal(signal.SIGTERM)
        code = command.wait()
    finally:
        command.kill()

    assert (code, command.log().endswith(ENDED)) == (143, True)
    assert f"{filler.name}: 3 files, 12 rows, next sequence 13\n" in command.log()
    assert json.loads(status.read_text())["lag"] == {}


@pytest.mark.skipif(not IS_MATRIX, reason="a JVM of its own: make spark-matrix runs it")
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
        data = BytesIO(path.read_bytes())  # in one piece, since the file is replaced repeatedly
        return sorted(pq.read_table(data)["seq"].to_pylist())

    try:
        until(lambda: path.exists() and seqs() == [1, 2, 3], command)
        filler.fill(1)  # another message for an existing subject
        until(lambda: seqs() == [2, 3, 4], command)
        command.process.send_signal(signal.SIGTERM)
        code = command.wait()
    finally:
        command.kill()

    assert code == 143
    assert command.log().endswith(ENDED)
    assert seqs() == [2, 3, 4]
    assert {each.name for each in path.parent.iterdir()} - {"_tmp"} == {"_latest.json", SNAPSHOT}
