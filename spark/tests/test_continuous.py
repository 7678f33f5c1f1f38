"""`--continuous` as a service runs it: what comes meanwhile is taken in, SIGTERM ends it, nothing is half done."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from spark.tests.conftest import JETSTREAM, Filler, Start, arrow_or_skip, required
from spark.tests.jvm.conftest import IS_MATRIX, lacking
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow.parquet as pq
from spark.tests.pipeline_kills import Command  # needs pyarrow

from pyjs_spark.cli import main as cli
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


def test_snapshots_are_made_again_and_again_until_sigterm(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)
    path = tmp_path / f"stream={filler.name}" / SNAPSHOT
    command = Command(
        ["compact", "--latest", filler.name, str(tmp_path), "-s", f"nats://127.0.0.1:{server.port}",
         "--continuous", "--every", "200ms"],
        tmp_path / "command.log",
    )  # fmt: skip

    def seqs() -> list[int]:
        return sorted(pq.read_table(path, partitioning=None)["seq"].to_pylist())

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
    assert list((path.parent / "_tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not IS_MATRIX, reason="a JVM of its own: make spark-matrix runs it")
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_an_aggregate_takes_in_what_comes_until_sigterm(
    start_peer: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = start_peer(JETSTREAM)  # pipeline_kills.py has aggregates on ours
    filler = Filler(server.port, "ORDERS")
    filler.create()
    filler.fill(9)
    file = tmp_path / "aggregate.toml"
    file.write_text(
        f'[pipeline]\nkind = "aggregate"\nstream = "{filler.name}"\ntarget = "kv:{filler.name}"\ncreate = true\n'
        f'checkpoint = "{tmp_path}/checkpoint"\nwindow = "24h"\nby = "all"\nmaster = "local[1]"\n'
        f'[values]\ncount = "count"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )
    command = Command(["run", "-c", str(file), "--continuous", "--every", "500ms"], tmp_path / "command.log")

    def counted() -> int:
        """Return the messages in all windows; those of two days, if midnight comes between."""
        prefix = f"$KV.{filler.name}."
        info = filler.raw.try_api(f"STREAM.INFO.KV_{filler.name}", subjects_filter=prefix + ">")
        subjects = info.get("state", {}).get("subjects") or {}
        found = [
            filler.raw.request(f"$JS.API.DIRECT.GET.KV_{filler.name}.{each}".encode()) for each in subjects
        ]
        return sum(json.loads(each)["count"] for each in found)

    def lag() -> int:
        assert cli.main(["status", "-c", str(file), "--json"]) == 0
        (stream,) = json.loads(capfd.readouterr().out)["streams"]
        return int(stream["lag"])

    try:
        until(lambda: counted() == 9, command)
        filler.fill(6)
        until(lambda: counted() == 15, command)
        until(lambda: lag() == 0, command)  # the checkpoint says so too
        command.process.send_signal(signal.SIGTERM)
        code = command.wait()
        deadline_s = time.monotonic() + WAIT_S
        while not is_gone(command.process.pid) and time.monotonic() < deadline_s:
            time.sleep(0.05)  # the JVM ends after the command
        assert is_gone(command.process.pid), "its JVM stayed"
    finally:
        command.kill()

    assert code == 143, command.log()
    assert command.log().endswith(ENDED), command.log()
    assert "Traceback" not in command.log()
    assert (counted(), lag()) == (15, 0)
    filler.raw.close()
