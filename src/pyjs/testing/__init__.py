"""Tests of programs that use NATS: a node on a virtual clock, with clients in memory.

For a real server in a test, use pyjs.aio.Server, pyjs.aio.ServerThread, or the fixture `pyjs_server`
(pytest_plugin.py).
"""

from pyjs.testing.node import CONNECT, Frame, MemoryLink, RawClient, VirtualNode

__all__ = ["CONNECT", "Frame", "MemoryLink", "RawClient", "VirtualNode"]
