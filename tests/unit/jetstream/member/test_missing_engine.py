"""A server of a JetStream cluster without the consensus engine does not start, and explains how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
sys.modules["pyjs_raft"] = None
from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.config.options import Options
from pyjs.node import Node, NotStarted

options = Options(server_name="a")
options.cluster.name, options.cluster.port = "EAST", 6222
options.jetstream.enabled, options.jetstream.store_dir = True, sys.argv[1]
node = Node(options, VirtualClock(), SeededRng(1), OsDisk(), ListLog())
try:
    node.start_jetstream()
except NotStarted as error:
    print(error)
print(node.jetstream)
"""


def test_a_server_without_the_engine_names_the_remedy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    said, jetstream = done.stdout.splitlines()
    assert said.startswith(
        "in a cluster it replicates streams, and the consensus engine (pyjs-raft) is missing"
    )
    assert "make cluster in a checkout" in said
    assert jetstream == "None"
