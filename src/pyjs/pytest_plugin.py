"""The pytest plugin: the fixture `pyjs_server` starts a server for each test that uses it.

pytest finds it by the package's entry point. The server is imported only when a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.aio import ServerThread

MARKER = (
    "pyjs_server(config=None, **keys): the configuration of the fixture pyjs_server, as for pyjs.aio.Server"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `pyjs_server`."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def pyjs_server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    """Start a NATS server for this test; its address is `pyjs_server.client_url`.

    The marker `pyjs_server` configures the server.
    """
    from pyjs.aio import ServerThread

    marker = request.node.get_closest_marker("pyjs_server")
    args, keys = (marker.args, marker.kwargs) if marker else ((), {})
    with ServerThread(*args, **keys) as server:
        yield server
