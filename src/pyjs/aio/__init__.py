"""The server inside a Python program: on the program's event loop, or in a thread of its own.

    async with pyjs.aio.Server() as server:
        client = await nats.connect(server.client_url)

See docs/embedding.md. The server changes nothing of the process: no signal handler, exception handler, event
loop policy, logging configuration, allocator, garbage collector or limit.
"""

from pyjs.aio.server import Server
from pyjs.aio.thread import ServerThread
from pyjs.config.errors import ConfigError
from pyjs.server.failures import StartFailed

__all__ = ["ConfigError", "Server", "ServerThread", "StartFailed"]
