"""The server on asyncio; no package below it knows sockets, threads, signals or the real clock."""
