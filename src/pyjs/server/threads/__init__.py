"""Threads in addition to the loop, for syncs, files and computation."""
