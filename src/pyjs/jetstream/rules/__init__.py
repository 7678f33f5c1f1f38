"""Checks and defaults for configurations of streams, sources and consumers."""
