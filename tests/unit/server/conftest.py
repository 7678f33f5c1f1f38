"""Every test of the shell runs on uvloop and on asyncio's own loop."""

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
