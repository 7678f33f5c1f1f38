"""The plugin, which pytest loads automatically."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from tests.unit.aio.support import refuses

from pyjs.aio import ServerThread

ONLY_IMPORTED = """
import sys
import pyjs.pytest_plugin
print(*sorted(name for name in sys.modules if name.startswith("pyjs") or name in ("asyncio", "uvloop")))
"""
urls: list[str] = []


def test_pytest_finds_the_plugin() -> None:
    (found,) = entry_points(group="pytest11", name="pyjs")

    assert found.value == "pyjs.pytest_plugin"


def test_the_plugin_loads_nothing_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONLY_IMPORTED], capture_output=True, text=True, check=True, timeout=60
    )

    # pytest itself imports asyncio in some versions
    assert set(done.stdout.split()) - {"asyncio"} == {"pyjs", "pyjs.pytest_plugin"}


@pytest.mark.parametrize("time", [1, 2])
def test_each_test_has_a_server_of_its_own(pyjs_server: ServerThread, time: int) -> None:
    assert not refuses(pyjs_server.client_url)
    assert all(refuses(url) for url in urls)
    urls.append(pyjs_server.client_url)


@pytest.mark.pyjs_server(jetstream=False, http_port=-1)
def test_a_marker_configures_the_server(pyjs_server: ServerThread) -> None:
    assert pyjs_server.monitor_url is not None
