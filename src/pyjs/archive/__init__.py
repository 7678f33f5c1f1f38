"""Archives of streams in nats-server's format: S2 frames and the entries in them. Pure: bytes in, bytes out."""
