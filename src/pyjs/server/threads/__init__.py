"""Threads beside the loop, for syncs, files and computation."""
