"""WebSocket clients: the upgrade of HTTP requests, and a transport for connections of clients on top of it."""
