"""Nothing holds the event loop up for long, whatever the clients do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.conformance.harness.process import REPOSITORY, ServerProcess
from tests.lag.timed_loop import Record, TimedLoop
from tests.lag.workload import KINDS, Size, measure

SMALL = Size(subjects=100_000, consumers=500, streams=200, seconds=8.0)
WHOLE = Size(subjects=1_000_000, consumers=5_000, streams=2_000, seconds=20.0)
SLOW_PER_CALL = 0.001  # callbacks over 20 ms: none up to p99.9


def test_a_slow_callback_is_reported_with_its_name_and_that_of_its_slow_part() -> None:
    record = Record(slow_ns=-1)
    loop = TimedLoop(record)

    def part() -> None:
        pass

    def callback() -> None:
        record.timed(part, "part", outer=False)()
        loop.stop()

    loop.call_soon(callback)
    loop.run_forever()
    loop.close()

    names = [names for _, names in record.slow]
    assert record.calls == len(names)
    assert any("part" in each and "callback" in each for each in names)


@pytest.mark.timeout(400)  # the whole size takes a minute, two where others work
def test_no_callback_holds_the_loop_up_while_every_kind_of_work_is_done_at_once(tmp_path: Path) -> None:
    size = WHOLE if os.environ.get("PYJS_LAG") == "whole" else SMALL
    seen = tmp_path / "report.json"
    environment = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), environment]))
    command = [sys.executable, "-m", "tests.lag.server", str(seen)]
    server = ServerProcess(command, 'jetstream: {store_dir: "<<store>>"}', tmp_path, with_http=True)
    server.start()
    try:
        work = measure(server.port, server.http_port, size)
        server.stop()
    finally:
        server.kill()

    found = json.loads(seen.read_text())
    shown = json.dumps({"done": work.done, **found}, indent=1)
    print(shown)
    assert not work.failures, work.failures
    assert all(work.done[kind.__name__] for kind in KINDS), shown
    assert len(found["slow"]) <= found["calls"] * SLOW_PER_CALL, shown
