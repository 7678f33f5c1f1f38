"""TLS of all ports: contexts, handshakes, the encrypted transport."""
