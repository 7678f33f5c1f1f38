"""Servers of a cluster are restarted or replaced one by one while nats-py clients work: no client sees an error."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from raft.tests.conftest import is_here

if not (is_here() and os.environ.get("PYJS_CLUSTER_PROCESSES")):
    pytest.skip("three real processes: make cluster-jetstream", allow_module_level=True)

from tests.failover.rolling import roll

pytestmark = pytest.mark.timeout(300)  # seconds: servers start on a busy machine


@pytest.mark.parametrize("way", ["term", "ldm", "replace", "evacuate"])
def test_a_server_restarts_or_is_replaced_without_an_error_for_applications(tmp_path: Path, way: str) -> None:
    figures = asyncio.run(roll("ours", "default", tmp_path, 1, [way], servers=1))
    assert figures["rounds"] == {way: 1}
    assert figures["violations"] == {}
    assert figures["acked"]
    if figures["silences"]:
        pytest.skip("servers were silent for 0.35 s without a cause: this machine has no time for them")
    assert figures["errors"] == {}
