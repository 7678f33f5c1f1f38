"""A blocking client: sockets, login, requests, and how long it bears with a server."""
