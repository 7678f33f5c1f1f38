"""Commands of operators: requests to a running server over NATS, and the alias. Knows nothing inside a server."""
