"""A blocking client: sockets, login, requests, and retries."""
