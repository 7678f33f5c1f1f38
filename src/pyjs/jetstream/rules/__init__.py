"""Checks and defaults for the configurations of streams, sources and consumers."""
