"""Declared streams on three real servers: the leader of the metadata applies its file, whichever server is killed."""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command

from pyjs.config.load import load_options
from pyjs.operating import plan
from pyjs.server.declaring.part import read_declared

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)  # seconds: many starts of servers, on a busy machine
long = pytest.mark.skipif(not os.environ.get("PYJS_CLUSTER_PROCESSES"), reason="make cluster-jetstream")
KILLS = 10
WAIT_S = 60.0
BLOCKS = """
streams {
  ORDERS { subjects: ["orders.>"], num_replicas: 3, max_age: "MINUTESm" }
  ONE { subjects: ["one"], description: "MINUTES" }
  ALONGSIDE { mirror: { name: ORDERS }, num_replicas: 3 }
}
consumers { ORDERS { bakery { ack_policy: explicit, max_deliver: MINUTES } } }
kv { settings { history: 5, replicas: 3 } }
"""


def block(minutes: int) -> str:
    inner = BLOCKS.replace("MINUTES", str(minutes))
    return f'jetstream {{ store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB\n{inner} }}'


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path_factory.mktemp("declared"), block(10)) as running:
        yield running


def edit(servers: ThreeServers, name: str, minutes: int) -> None:
    """Write the file of a server, for a reload and for its next start."""
    server = servers.server(name)
    old, new = server.config_path.read_text("utf-8"), ""
    for line in old.splitlines(keepends=True):
        new += (
            line
            if "max_age" not in line
            else f'  ORDERS {{ subjects: ["orders.>"], num_replicas: 3, max_age: "{minutes}m" }}\n'
        )
    server.config_path.write_text(new, "utf-8")


def planned(servers: ThreeServers, name: str) -> list[dict[str, Any]] | str:
    """Return what `pyjs-server plan` says with the file of a server, or the error."""
    path, out, err = str(servers.server(name).config_path), io.StringIO(), io.StringIO()
    options = load_options(path, lambda each: Path(each).read_text("utf-8"), os.environ, {})
    arguments = plan.parse(["-c", path, "--json"])
    if plan.run(arguments, options, read_declared(options), out, err) == 1:
        return err.getvalue()
    assets: list[dict[str, Any]] = json.loads(out.getvalue())["accounts"][0]["assets"]
    return assets


def wait_equal(servers: ThreeServers, *names: str) -> None:
    """Wait until the streams equal the files of these servers."""
    deadline = time.monotonic() + WAIT_S
    for name in names:
        while True:
            found = planned(servers, name)
            if isinstance(found, list) and all(_is_done(each) for each in found):
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.05)  # between two looks: another process applies


def _is_done(asset: dict[str, Any]) -> bool:
    """Return whether an asset equals the file; that of a server that was killed cannot be asked."""
    return asset["action"] == "same" or asset.get("reason") == "no server answers"


def leader(servers: ThreeServers, *names: str) -> str:
    """Return the leader of the metadata among these servers."""
    page = servers.wait_page(names[0], "/jsz", lambda each: each["meta_cluster"].get("leader") in names)
    found: str = page["meta_cluster"]["leader"]
    return found


def test_the_leader_applies_the_file_at_the_start(servers: ThreeServers) -> None:
    wait_equal(servers, *NAMES)
    made = [name for name in NAMES if servers.server(name).logged("stream ORDERS  created", 0)]
    assert len(made) == 1


def test_a_reload_of_all_servers_applies_the_new_file(servers: ThreeServers) -> None:
    for name in NAMES:
        edit(servers, name, 20)
    for name in NAMES:
        servers.server(name).signal("HUP")
    wait_equal(servers, *NAMES)


@long
def test_a_killed_leader_leaves_its_work_to_the_next_one(servers: ThreeServers) -> None:
    rng = random.Random(7)
    wait_equal(servers, *NAMES)
    for minutes in range(30, 30 + KILLS):
        first = leader(servers, *NAMES)
        others = [name for name in NAMES if name != first]
        for name in NAMES:
            edit(servers, name, minutes)
        for name in (first, *others):
            servers.server(name).signal("HUP")
        time.sleep(rng.random() / 20)  # the fault comes at any moment
        servers.server(first).kill()
        wait_equal(servers, *others)
        servers.server(first)._config = servers.server(first)._config.replace(
            'max_age: "10m"', f'max_age: "{minutes}m"'
        )
        servers.start_processes(first)
        wait_equal(servers, *NAMES)
        servers.server(first)._config = servers.server(first)._config.replace(
            f'max_age: "{minutes}m"', 'max_age: "10m"'
        )


@long
def test_a_server_with_another_file_says_so(servers: ThreeServers) -> None:
    wait_equal(servers, *NAMES)
    first = leader(servers, *NAMES)
    other = next(name for name in NAMES if name != first)
    edit(servers, other, 99)
    servers.server(other).signal("HUP")
    assert servers.server(other).logged("what the leader of the cluster has not applied: 1 assets differ", 30)
    found = planned(servers, other)
    assert isinstance(found, list)
    assert [each["action"] for each in found].count("update") == 1
