"""The event loop of the command: uvloop, or asyncio's own loop if uvloop is not installed.

A server inside another program runs on that program's loop instead.

Source: https://uvloop.readthedocs.io/; docs/dependencies.md compares the loops.
"""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's if uvloop is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:  # a platform without uvloop, see pyproject.toml
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
