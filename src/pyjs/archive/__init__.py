"""Archives and stored files in nats-server's formats, such as entries and message blocks: bytes in, bytes out."""
