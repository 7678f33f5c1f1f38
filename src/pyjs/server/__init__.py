"""The server on asyncio; the only package that knows sockets, threads, signals and the clock."""
