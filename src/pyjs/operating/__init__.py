"""Commands of operators: requests to a running server over NATS, and the alias. They run outside the server."""
