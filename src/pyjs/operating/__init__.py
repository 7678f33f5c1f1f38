"""Commands that ask a running server over NATS, as an operator. Knows nothing of the inside of a server."""
