"""What is allowed: checks and defaults of streams, sources and consumers."""
