"""Every test of the server process runs on uvloop and on asyncio's own loop."""

from tests.support.loops import new_loop, pytest_asyncio_loop_factories

__all__ = ["new_loop", "pytest_asyncio_loop_factories"]
