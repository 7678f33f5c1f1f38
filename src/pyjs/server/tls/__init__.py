"""TLS of client connections: contexts, handshakes, the encrypted transport."""
