"""Archives of streams in nats-server's format: S2 frames and their entries. Pure: bytes in, bytes out."""
