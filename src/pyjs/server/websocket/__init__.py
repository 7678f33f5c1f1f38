"""WebSocket clients: the upgrade of HTTP requests, and the transport of their connections."""
