"""Both event loops: tests in a directory whose conftest imports these names run on uvloop and on asyncio's loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops by name."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the function that makes a loop, for tests that run it themselves."""
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return factory
