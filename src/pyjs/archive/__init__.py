"""Archives of streams as nats-server writes them: S2 frames and their entries. Pure: bytes in, bytes out."""
